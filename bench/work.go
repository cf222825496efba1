package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// The number of files in the tree that git and tar go through.
const (
	treeFiles      = 20000
	quickTreeFiles = 2000
	filesPerFolder = 100
)

// workCases ask what a command pays while it runs, on top of its start.
func workCases(ctx context.Context, l *lab) ([]benchCase, error) {
	files := treeFiles
	if l.quick {
		files = quickTreeFiles
	}
	l.say("work: making a tree of %d files", files)
	tree, err := l.folder("tree")
	if err != nil {
		return nil, err
	}
	if err := makeTree(filepath.Join(tree, "files"), files); err != nil {
		return nil, err
	}
	var cases []benchCase
	add := func(title string, j job, err error) {
		if err != nil {
			l.skip(title, err)
			return
		}
		cases = append(cases, benchCase{
			title: title, job: j, wants: works, baselines: []string{plainName}, unit: report.Seconds,
			budget: 25 * time.Second, sampler: launchTime,
		})
	}
	j, err := tarJob(tree)
	add(tarTitle(files), j, err)
	j, err = gitJob(ctx, tree)
	add(gitTitle(files), j, err)
	j, err = l.goJob(ctx)
	add(goTitle, j, err)
	return cases, ctx.Err()
}

// works leaves out most ways to use the library: inside, nothing of it is left but
// what the command has too. A warm session shows that without the start.
func works(c contender) bool {
	return swift(c) && (!c.own || strings.HasPrefix(c.name, modeCommand) || strings.HasPrefix(c.name, modeWarm))
}

// makeTree makes small text files.
func makeTree(root string, files int) error {
	for i := range files {
		dir := filepath.Join(root, fmt.Sprintf("part-%03d", i/filesPerFolder))
		if i%filesPerFolder == 0 {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		text := strings.Repeat(fmt.Sprintf("line of file %d\n", i), 10)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%05d.txt", i)), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tarJob reads every file. tar reads nothing at all if its output is the null
// device, hence the pipe.
func tarJob(tree string) (job, error) {
	_, err := exec.LookPath("tar")
	return job{Argv: []string{"sh", "-c", "tar -cf - files | cat >/dev/null"}, Workspace: tree}, err
}

// gitJob looks at every file's inode.
func gitJob(ctx context.Context, tree string) (job, error) {
	git := []string{"git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "core.fsmonitor=false"}
	for _, args := range [][]string{{"init", "-q"}, {"add", "files"}, {"commit", "-q", "-m", "files"}} {
		if err := inFolder(ctx, tree, nil, slices.Concat(git, args)...); err != nil {
			return job{}, err
		}
	}
	// git compares the content of files as young as its index. Once they are
	// older, a status writes an index that says so, and later ones need not.
	select {
	case <-time.After(1100 * time.Millisecond):
	case <-ctx.Done():
		return job{}, ctx.Err()
	}
	now := time.Now()
	err := os.Chtimes(filepath.Join(tree, "files", "part-000", "file-00000.txt"), now, now.Add(-time.Hour))
	status := slices.Concat(git, []string{"status", "--porcelain"})
	return job{Argv: status, Workspace: tree}, errors.Join(err, inFolder(ctx, tree, nil, status...))
}

// goJob links a program whose packages are all in the build cache. Cache and
// temporary folder lie in the workspace, or each sandbox would use another
// file system for them.
func (l *lab) goJob(ctx context.Context) (job, error) {
	dir, err := l.folder("module")
	if err != nil {
		return job{}, err
	}
	for name, text := range moduleFiles {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			return job{}, err
		}
	}
	j := job{
		// Without the old program go has to link.
		Argv: []string{"sh", "-c", "rm -f program && exec go build -o program ."}, Workspace: dir,
		Env: []string{"GOCACHE=" + filepath.Join(dir, ".cache"), "GOTMPDIR=" + filepath.Join(dir, ".tmp"), "GOPATH=" + filepath.Join(dir, ".path"),
			"GOFLAGS=-buildvcs=false", "GOPROXY=off", "GOTOOLCHAIN=local", "GOTELEMETRY=off", "CGO_ENABLED=0"},
	}
	l.say("work: filling a build cache")
	err = os.MkdirAll(filepath.Join(dir, ".tmp"), 0o755)
	return j, errors.Join(err, inFolder(ctx, dir, j.environ(), j.Argv...))
}

// moduleFiles are a small Go module with two packages.
var moduleFiles = map[string]string{
	"go.mod":  "module example.test/words\n\ngo 1.21\n",
	"main.go": "package main\n\nimport (\n\t\"fmt\"\n\n\t\"example.test/words/count\"\n)\n\nfunc main() { fmt.Println(count.Words(\"a glass cover\")) }\n",
	"count/count.go": "// Package count counts words.\npackage count\n\nimport \"strings\"\n\n" +
		"// Words returns how many words there are.\nfunc Words(s string) int { return len(strings.Fields(s)) }\n",
}

// inFolder runs a command of the preparations.
func inFolder(ctx context.Context, dir string, env []string, argv ...string) error {
	out, err := command{argv: argv, env: env, dir: dir}.cmd(ctx).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", argv[0], err, lastLines(string(out), 2))
	}
	return nil
}
