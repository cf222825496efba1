package apitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// gitSinkAttacks change what the user's own git settings name. $B is the
// directory of the case, $B/home the user's home. The workspace is $B/ws, which
// setup makes. plant makes a program that leaves $B/mark.
var gitSinkAttacks = map[string]struct{ setup, inside, victim string }{
	"included from .git": {
		setup:  `git init -q ws; mkdir ws/.git/branchless; : >ws/.git/branchless/config; git -C ws config include.path branchless/config`,
		inside: `plant payload; printf '[core]\n\tfsmonitor = %s/payload\n' "$PWD" >.git/branchless/config || { rm -rf .git/branchless; mkdir .git/branchless; printf '[core]\n\tfsmonitor = %s/payload\n' "$PWD" >.git/branchless/config; }`,
		victim: `cd ws; git status`,
	},
	"included from .git, missing": {
		setup:  `git init -q ws; git -C ws config include.path late/config`,
		inside: `plant payload; mkdir .git/late; printf '[core]\n\tfsmonitor = %s/payload\n' "$PWD" >.git/late/config`,
		victim: `cd ws; git status`,
	},
	"hooks path in .git": {
		setup:  `git init -q ws; mkdir ws/.git/mine; git -C ws config core.hooksPath .git/mine`,
		inside: `plant .git/mine/pre-commit; mv .git/mine .git/old; mkdir .git/mine; plant .git/mine/pre-commit`,
		victim: `cd ws; git commit --allow-empty -m x`,
	},
	"hooks path of a linked worktree": {
		setup:  `git init -q main; cd main; git commit -q --allow-empty -m x; git config core.hooksPath my-hooks; git worktree add -q ../ws`,
		inside: `mkdir my-hooks; plant my-hooks/pre-commit`,
		victim: `cd ws; git commit --allow-empty -m x`,
	},
	"worktree settings of a linked worktree": {
		setup:  `git init -q main; cd main; git commit -q --allow-empty -m x; git config extensions.worktreeConfig true; git worktree add -q ../ws; cd ../ws; git config --worktree core.hooksPath my-hooks`,
		inside: `mkdir my-hooks; plant my-hooks/pre-commit`,
		victim: `cd ws; git commit --allow-empty -m x`,
	},
	"hooks path of the main worktree, in a linked one": {
		setup:  `git init -q main; cd main; git commit -q --allow-empty -m x; git config core.hooksPath my-hooks; git worktree add -q ../ws; cd ..; mv main ws/main; git -C ws/main worktree repair ../`,
		inside: `mkdir main/my-hooks; plant main/my-hooks/pre-commit`,
		victim: `cd ws/main; git commit --allow-empty -m x`,
	},
	"hooks path of a worktree in the workspace": {
		setup:  `git init -q ws; cd ws; git commit -q --allow-empty -m x; git config core.hooksPath my-hooks; git worktree add -q wt`,
		inside: `mkdir wt/my-hooks; plant wt/my-hooks/pre-commit`,
		victim: `cd ws/wt; git commit --allow-empty -m x`,
	},
	"hooks path of a submodule": {
		setup:  `git init -q up; git -C up commit -q --allow-empty -m x; git init -q main; cd main; git -c protocol.file.allow=always submodule --quiet add ../up sub; git -C sub config core.hooksPath my-hooks; cd ..; ln -s main/sub ws`,
		inside: `mkdir my-hooks; plant my-hooks/pre-commit`,
		victim: `cd ws; git commit --allow-empty -m x`,
	},
	"hooks path of a submodule in the workspace": {
		setup:  `git init -q up; git -C up commit -q --allow-empty -m x; git init -q ws; cd ws; git -c protocol.file.allow=always submodule --quiet add ../up a/sub; git -C a/sub config core.hooksPath my-hooks`,
		inside: `mkdir a/sub/my-hooks; plant a/sub/my-hooks/pre-commit`,
		victim: `cd ws/a/sub; git commit --allow-empty -m x`,
	},
	"hooks path of the user": {
		setup:  `git init -q ws; git config --global core.hooksPath my-hooks`,
		inside: `mkdir my-hooks; plant my-hooks/pre-commit`,
		victim: `cd ws; git commit --allow-empty -m x`,
	},
	"hooks path of the user, in a repository inside": {
		setup:  `git init -q ws; git config --global core.hooksPath my-hooks`,
		inside: `git init -q a/b; mkdir a/b/my-hooks; plant a/b/my-hooks/pre-commit`,
		victim: `cd ws/a/b; git commit --allow-empty -m x`,
	},
	"program of the user": {
		setup:  `git init -q ws; git config --global core.fsmonitor ./tools/watch`,
		inside: `mkdir tools; plant tools/watch`,
		victim: `cd ws; git status`,
	},
	"included by the user": {
		setup:  `git init -q ws; git config --global include.path "$B/ws/team.cfg"`,
		inside: `plant payload; printf '[core]\n\tfsmonitor = %s/payload\n' "$PWD" >team.cfg`,
		victim: `cd ws; git status`,
	},
	"included by the system": {
		setup:  `git init -q ws; git config -f system include.path "$B/ws/team.cfg"`,
		inside: `plant payload; printf '[core]\n\tfsmonitor = %s/payload\n' "$PWD" >team.cfg`,
		victim: `cd ws; git status`,
	},
	"workspace below the top": {
		setup:  `git init -q top; mkdir top/ws; ln -s top/ws ws; git -C top config core.hooksPath ws/my-hooks`,
		inside: `mkdir my-hooks; plant my-hooks/pre-commit`,
		victim: `cd top; git commit --allow-empty -m x`,
	},
}

// N8: what the user's git settings run or read, wherever those settings are, is
// protected. Each attack is a real one: outside it leaves the mark.
func TestGitSettingsSinksRun(t *testing.T) {
	testenv.Need(t, "git")
	for name, a := range gitSinkAttacks {
		t.Run("control/"+name, func(t *testing.T) {
			if !gitSinkMarks(t, "", a.setup, a.inside, a.victim) {
				t.Error("the attack does nothing without a sandbox either")
			}
		})
		for backend, needs := range gitBackends {
			t.Run(backend+"/"+name, func(t *testing.T) {
				testenv.Need(t, needs...)
				if gitSinkMarks(t, backend, a.setup, a.inside, a.victim) {
					t.Error("git outside ran something of the command's")
				}
			})
		}
	}
}

// gitSinkMarks runs one attack, without a backend unconfined, and reports
// whether the victim ran what it left.
func gitSinkMarks(t *testing.T, backend, setup, inside, victim string) bool {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(base, "home"), 0o755); err != nil {
		t.Fatal(err)
	}
	const prelude = `plant() { { echo '#!/bin/sh'; echo "touch '$B/mark'"; echo 'exit 1'; } >"$1" && chmod +x "$1"; }
`
	for name, value := range map[string]string{
		"HOME": base + "/home", "XDG_CONFIG_HOME": "", "GIT_CONFIG_SYSTEM": base + "/system", "B": base, "GIT_EDITOR": "true", "GIT_PAGER": "cat",
		"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
	} {
		t.Setenv(name, value)
	}
	outside := func(dir, script string) string {
		cmd := exec.Command("/bin/sh", "-c", prelude+script)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	said := outside(base, "set -e; touch system; "+setup)
	ws, err := filepath.EvalSymlinks(filepath.Join(base, "ws"))
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if backend == "" {
		outside(ws, inside)
	} else {
		p := policy.Workspace(ws).With(policy.WithBackend(backend), policy.WithEnv("B", base))
		cmd := cloche.Command(t.Context(), p, "/bin/sh", "-c", prelude+inside)
		cmd.Dir = ws
		r, err := cmd.Capture()
		if r == nil {
			t.Fatal(err)
		}
		said = string(r.Stdout) + string(r.Stderr)
	}
	said += outside(base, victim)
	_, err = os.Stat(filepath.Join(base, "mark"))
	if err == nil && backend != "" {
		t.Log(strings.TrimSpace(said))
	}
	return err == nil
}
