// Package gitscripts holds sessions with git as shell scripts: those that must
// work under the guard of git directories, and attacks that must come to
// nothing. Each attack is a real one: without a guard, git outside runs what it
// left. Tests of several packages run them, so they are data.
//
// The layout: BASE/ws is the workspace, the only folder that a script may
// write, and BASE/out/mark the file that appears if something of an attack
// runs outside.
package gitscripts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// A Script is one session or attack.
type Script struct {
	Name string
	// Needs are programs beside git, in the words of testenv.Need.
	Needs []string
	// Setup is done by the user beforehand, after the common one.
	Setup string
	// Inside is what the command does in the sandbox, in the workspace.
	Inside string
	// Victim is what the user does afterwards, beyond status, diff, log,
	// commit and reset in every folder that could be a repository.
	Victim string
	// Check is run by the user at the very end, in the workspace, and must
	// succeed.
	Check string
	// WantOK says that Inside must succeed.
	WantOK bool
	// Quiet is an attack that is found by Check, not by the mark.
	Quiet bool
}

// prelude makes every script independent of the settings of its user. plant
// makes a program that leaves the mark.
const prelude = `
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_EDITOR=true VISUAL=true GIT_PAGER=cat LC_ALL=C
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=init.defaultBranch GIT_CONFIG_VALUE_0=main
plant() { { echo '#!/bin/sh'; echo "touch '$MARK'"; echo 'exit 1'; } >"$1" && chmod +x "$1"; }
evil() { printf '[core]\n\tfsmonitor = "%s/payload"\n' "$WS"; }
`

// commonSetup is a repository with two commits, and another one in it to
// fetch from.
const commonSetup = `set -e
git init -q .
printf 'payload\nupstream\n*.cfg\n' >.gitignore
echo one >file; git add .; git commit -qm one
echo two >>file; git commit -qam two
git init -q upstream
(cd upstream; echo up >up; git add up; git commit -qm up; git branch topic)
`

// visit is what any user does sooner or later. Nothing of it needs to succeed.
const visit = `
git status; git diff; git log -1 -p; git reset --hard; git commit --allow-empty -m visit; git stash
`

// patience bounds what the user does in one folder: a program that an attack
// leaves may wait for ever.
const patience = time.Minute

// Mark is the path of the mark that belongs to a base folder.
func Mark(base string) string { return filepath.Join(base, "out", "mark") }

// Workspace is the path of the workspace that belongs to a base folder.
func Workspace(base string) string { return filepath.Join(base, "ws") }

// Prepare makes the folders, the common repositories and those of the script.
func (s Script) Prepare(base string) error {
	for _, dir := range []string{"ws", "out"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			return err
		}
	}
	return run(base, Workspace(base), commonSetup+s.Setup)
}

// Argv is the command that is to be run in the sandbox, in the workspace.
func (s Script) Argv(base string) []string {
	text := "set -u\n" + s.Inside
	if s.WantOK {
		text = "set -eu\n" + s.Inside
	}
	return shell(base, text)
}

// Visit is the user, who works in every repository and then looks at what
// Check looks at. It reports whether something of the script ran outside.
func (s Script) Visit(base string) (marked bool, err error) {
	if err := os.RemoveAll(Mark(base)); err != nil {
		return false, err
	}
	folders, err := repositories(Workspace(base))
	if err != nil {
		return false, err
	}
	for _, dir := range folders {
		run(base, dir, visit+s.Victim) //nolint:errcheck // what fails on the way does not matter
	}
	if s.Check != "" {
		err = run(base, Workspace(base), "set -eu\n"+s.Check)
	}
	_, missing := os.Stat(Mark(base))
	return missing == nil, err
}

// repositories are all folders in which git could find itself at home.
func repositories(root string) ([]string, error) {
	folders := []string{root}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if name == "HEAD" || name == ".git" {
			folders = append(folders, filepath.Dir(path))
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		return err
	})
	slices.Sort(folders)
	return slices.Compact(folders), err
}

func shell(base, text string) []string {
	variables := fmt.Sprintf("MARK='%s' WS='%s'\n", Mark(base), Workspace(base))
	return []string{"/bin/sh", "-c", variables + prelude + text}
}

func run(base, dir, text string) error {
	argv := shell(base, text)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("outside, in %s: %w\n%s", dir, err, output.Bytes())
	}
	return nil
}
