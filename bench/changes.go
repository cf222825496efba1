package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// The names of media, as in titles.
const (
	onDisk  = "on disk"
	onTmpfs = "on tmpfs"
)

// A medium is a kind of file system: work on a disk hides what a sandbox costs.
type medium struct {
	name string
	dir  string // in which workspaces are made
}

// sizes say how much there is to do in a case.
type sizes struct {
	files    int // of the tree that is unpacked, copied and removed
	turns    int // of creating, renaming and removing one file
	changed  int // files that differ between two commits
	packages int // that npm installs
	objects  int // that make compiles
	opens    int // of files for reading
	starts   int // of /bin/true by a shell
}

var (
	fullSizes  = sizes{files: treeFiles, turns: 5000, changed: 5000, packages: 350, objects: 500, opens: 5000, starts: 500}
	quickSizes = sizes{files: 300, turns: 100, changed: 50, packages: 5, objects: 5, opens: 100, starts: 10}
)

// changesCases ask what a command pays for creating, renaming and removing files, and for
// opening many.
func changesCases(ctx context.Context, l *lab) ([]benchCase, error) {
	size := fullSizes
	if l.quick {
		size = quickSizes
	}
	dir, err := l.folder("disk")
	if err != nil {
		return nil, err
	}
	media := []medium{{onDisk, dir}}
	if dir, err := l.inMemory(); err != nil {
		l.skip("changes on a tmpfs", err)
	} else {
		media = append(media, medium{onTmpfs, dir})
	}
	var cases []benchCase
	for _, m := range media {
		for _, c := range changeJobs {
			title := c.title(m.name, size)
			if c.goals[m.name] == 0 {
				continue
			}
			l.say("changes: preparing %s", title)
			ws := filepath.Join(m.dir, c.name)
			if err := os.MkdirAll(ws, 0o755); err != nil {
				return nil, err
			}
			j, before, err := c.prepare(ctx, ws, size)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				l.skip(title, err)
				continue
			}
			j.Workspace = ws
			cases = append(cases, benchCase{
				title: title, job: j, wants: changes, baselines: []string{plainName}, unit: report.Seconds,
				budget: 20 * time.Second, sampler: timeAfter(before),
			})
		}
	}
	return cases, nil
}

// changes leaves out what differs in its start alone.
func changes(c contender) bool {
	return c.name == plainName || c.name == "bwrap" || c.name == modeCommand+", bwrap" || c.name == modeWarm+", native"
}

// inMemory makes a folder on a tmpfs: in the one that -memory names, or else in the
// temporary folder, if that is one.
func (l *lab) inMemory() (string, error) {
	parent := l.memory
	if parent == "" {
		parent = os.TempDir()
	}
	if !isTmpfs(parent) {
		return "", fmt.Errorf("%s is not on a tmpfs; name a folder that is with -memory", parent)
	}
	dir, err := os.MkdirTemp(parent, "cloche-bench-")
	if err != nil {
		return "", err
	}
	l.remove = append(l.remove, dir)
	return filepath.EvalSymlinks(dir)
}

// timeAfter samples the time of one launch, before which something is prepared that is not
// measured.
func timeAfter(before []string) func(context.Context, *lab, *runner) (sampler, error) {
	return func(ctx context.Context, _ *lab, r *runner) (sampler, error) {
		sample := func(ctx context.Context) (float64, error) {
			if err := exec.CommandContext(ctx, "sh", "-c", strings.Join(append([]string{"set -e"}, before...), "\n")).Run(); err != nil {
				return 0, fmt.Errorf("preparing: %w", err)
			}
			time.Sleep(launchPause)
			start := time.Now()
			err := r.run(ctx)
			return time.Since(start).Seconds(), err
		}
		_, err := sample(ctx) // fills caches
		return sample, err
	}
}

// A changeJob is one kind of work. Its job runs in its workspace, and so do the lines of a
// shell script before it, which are not measured.
type changeJob struct {
	name    string
	what    func(sizes) string
	prepare func(ctx context.Context, ws string, s sizes) (j job, before []string, err error)
	// goals are what it is to cost at most, by the media on which it is measured.
	goals map[string]float64
}

func (c changeJob) title(where string, s sizes) string { return c.what(s) + ", " + where }

var changeJobs = []changeJob{
	{name: "untar", what: func(s sizes) string { return fmt.Sprintf("`tar x` of %d files", s.files) }, prepare: untarJob, goals: map[string]float64{onDisk: 1.15, onTmpfs: 1.5}},
	{name: "cp", what: func(s sizes) string { return fmt.Sprintf("`cp -r` of %d files", s.files) }, prepare: copyJob, goals: map[string]float64{onDisk: 1.15, onTmpfs: 1.5}},
	{name: "rm", what: func(s sizes) string { return fmt.Sprintf("`rm -rf` of %d files", s.files) }, prepare: removeJob, goals: map[string]float64{onDisk: 1.15, onTmpfs: 1.5}},
	{name: "churn", what: func(sizes) string { return "create, rename and unlink one file" }, prepare: churnJob(1), goals: map[string]float64{onDisk: 1.3, onTmpfs: 2.0}},
	{name: "churn-8", what: func(sizes) string { return "the same by 8 threads" }, prepare: churnJob(8), goals: map[string]float64{onTmpfs: 2.0}},
	{name: "checkout", what: func(s sizes) string { return fmt.Sprintf("`git checkout` of %d files", s.changed) }, prepare: checkoutJob, goals: map[string]float64{onDisk: 1.1}},
	{name: "clone", what: func(s sizes) string { return fmt.Sprintf("`git clone` of %d files", s.changed) }, prepare: cloneJob, goals: map[string]float64{onDisk: 1.1}},
	{name: "npm", what: func(s sizes) string { return fmt.Sprintf("`npm ci` of %d packages", s.packages) }, prepare: npmJob, goals: map[string]float64{onDisk: 1.1}},
	{name: "make", what: func(s sizes) string { return fmt.Sprintf("`make -j2` of %d objects", s.objects) }, prepare: makeJob, goals: map[string]float64{onDisk: 1.05}},
	{name: "opens", what: func(s sizes) string { return fmt.Sprintf("%d opens for reading", s.opens) }, prepare: opensJob, goals: map[string]float64{onTmpfs: 1.3}},
	{name: "starts", what: func(s sizes) string { return fmt.Sprintf("a shell that runs `true` %d times", s.starts) }, prepare: startsJob, goals: map[string]float64{onTmpfs: 1.05}},
}

// changeGoals are the goals of all of them.
func changeGoals() []report.Goal {
	var all []report.Goal
	for _, where := range []string{onDisk, onTmpfs} {
		for _, c := range changeJobs {
			if most := c.goals[where]; most > 0 {
				title := c.title(where, fullSizes)
				all = append(all, report.Goal{What: title, Title: title, Row: modeWarm + ", native", Baseline: plainName, Most: most})
			}
		}
	}
	return all
}

func shell(script string) job { return job{Argv: []string{"sh", "-c", script}} }

func untarJob(ctx context.Context, ws string, s sizes) (job, []string, error) {
	if err := makeTree(filepath.Join(ws, "files"), s.files); err != nil {
		return job{}, nil, err
	}
	err := inFolder(ctx, ws, nil, "sh", "-c", "tar -cf files.tar files && rm -rf files")
	return shell("tar -xf files.tar"), []string{"rm -rf files"}, err
}

func copyJob(_ context.Context, ws string, s sizes) (job, []string, error) {
	return shell("cp -r files copy"), []string{"rm -rf copy"}, makeTree(filepath.Join(ws, "files"), s.files)
}

func removeJob(_ context.Context, ws string, s sizes) (job, []string, error) {
	return shell("rm -rf copy"), []string{"cp -r files copy"}, makeTree(filepath.Join(ws, "files"), s.files)
}

// churnJob runs this program: see churnMain. It is copied into the workspace, where every
// sandbox finds it.
func churnJob(threads int) func(context.Context, string, sizes) (job, []string, error) {
	return func(_ context.Context, ws string, s sizes) (job, []string, error) {
		self, err := os.Executable()
		if err != nil {
			return job{}, nil, err
		}
		program := filepath.Join(ws, "program")
		return job{Argv: []string{program, churnWord, strconv.Itoa(threads), strconv.Itoa(s.turns)}}, nil, copyProgram(program, self)
	}
}

var benchGit = []string{"git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "init.defaultBranch=main", "-c", "advice.detachedHead=false"}

// repository makes a repository with a commit of some files, and a second commit, "other",
// in which each of them differs.
func repository(ctx context.Context, dir string, files int) error {
	tree := filepath.Join(dir, "files")
	git := func(args ...string) error { return inFolder(ctx, dir, nil, slices.Concat(benchGit, args)...) }
	if err := errors.Join(makeTree(tree, files), git("init", "-q"), git("add", "files"), git("commit", "-q", "-m", "first")); err != nil {
		return err
	}
	err := filepath.WalkDir(tree, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.WriteFile(path, []byte("another text of "+path+"\n"), 0o644)
	})
	return errors.Join(err, git("commit", "-q", "-a", "-m", "second"), git("branch", "other", "HEAD~1"))
}

func checkoutJob(ctx context.Context, ws string, s sizes) (job, []string, error) {
	return shell("git checkout -q other"), []string{"git checkout -q -f main"}, repository(ctx, ws, s.changed)
}

func cloneJob(ctx context.Context, ws string, s sizes) (job, []string, error) {
	from := filepath.Join(ws, "from")
	if err := os.MkdirAll(from, 0o755); err != nil {
		return job{}, nil, err
	}
	return shell("git clone -q from to"), []string{"rm -rf to"}, repository(ctx, from, s.changed)
}

func makeJob(ctx context.Context, ws string, s sizes) (job, []string, error) {
	makefile := "objects := $(patsubst %.c,%.o,$(wildcard *.c))\nall: $(objects)\n%.o: %.c\n\tcc -O1 -MMD -c -o $@ $<\n"
	if err := os.WriteFile(filepath.Join(ws, "Makefile"), []byte(makefile), 0o644); err != nil {
		return job{}, nil, err
	}
	for i := range s.objects {
		text := fmt.Sprintf("#include <stdio.h>\nint f%d(int x) { return printf(\"%%d\\n\", x + %d); }\n", i, i)
		if err := os.WriteFile(filepath.Join(ws, fmt.Sprintf("f%d.c", i)), []byte(text), 0o644); err != nil {
			return job{}, nil, err
		}
	}
	return shell("make -s -j2"), []string{"rm -f *.o *.d"}, inFolder(ctx, ws, nil, "sh", "-c", "command -v make cc")
}

func opensJob(ctx context.Context, ws string, s sizes) (job, []string, error) {
	script := fmt.Sprintf("for i in range(%d):\n    open('files/part-%%03d/file-%%05d.txt' %% (i // %d, i)).close()\n", s.opens, filesPerFolder)
	err := errors.Join(makeTree(filepath.Join(ws, "files"), s.opens), os.WriteFile(filepath.Join(ws, "opens.py"), []byte(script), 0o644))
	return job{Argv: []string{"/usr/bin/python3", "opens.py"}}, nil, errors.Join(err, inFolder(ctx, ws, nil, "/usr/bin/python3", "opens.py"))
}

func startsJob(_ context.Context, _ string, s sizes) (job, []string, error) {
	return shell(fmt.Sprintf("i=0; while [ $i -lt %d ]; do /bin/true; i=$((i+1)); done", s.starts)), nil, nil
}
