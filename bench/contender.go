package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// plainName is the contender without a sandbox.
const plainName = "plain exec"

// A job is what every contender of a case does.
type job struct {
	Argv      []string
	Workspace string // the working folder, writable
	// Env is added to the environment of the command, as NAME=value.
	Env []string
	// Write and Read are granted and Hide is hidden beyond the defaults.
	Write, Read, Hide []string
}

// A contender is one way to run a job.
type contender struct {
	name string
	// own marks cloche's ways.
	own bool
	// slow ones take part only where a scenario asks for everybody.
	slow bool
	// open gets ready to run the job. The working folder of this program is then,
	// and while the job runs, the job's workspace.
	open func(ctx context.Context, l *lab, j job) (*runner, error)
}

// A runner runs one job again and again. It is safe for concurrent use.
type runner struct {
	run func(context.Context) error
	// process runs the same as a process of its own, for those who look at it
	// from outside.
	process command
	// sample measures in the contender's own way, where run says too little.
	sample sampler
	close  func() error
}

// A command is a process to start.
type command struct {
	argv, env []string
	dir       string
}

// stopTime is how long a contender that gets a signal to stop may clean up.
const stopTime = 3 * time.Second

func (c command) cmd(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = c.env, c.dir, stopTime
	// A sandbox that is killed outright may leave helpers behind.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}

// runner returns the runner of a command. Output goes nowhere: copying it would
// be measured too.
func (c command) runner() *runner {
	return &runner{
		run:     func(ctx context.Context) error { return c.cmd(ctx).Run() },
		process: c,
		close:   func() error { return nil },
	}
}

// why runs the command once more to find out what it says.
func (c command) why(ctx context.Context, err error) error {
	if len(c.argv) == 0 {
		return err
	}
	out, again := c.cmd(ctx).CombinedOutput()
	if said := lastLines(string(out), 2); again != nil && said != "" {
		return fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// environ is the environment for a job of a contender that passes its own on.
func (j job) environ() []string { return append(os.Environ(), j.Env...) }

// wrapped is a contender that is a command line in front of the job's.
func wrapped(name string, slow bool, front func(l *lab, j job) ([]string, error)) contender {
	return contender{name: name, slow: slow, open: func(_ context.Context, l *lab, j job) (*runner, error) {
		argv, err := front(l, j)
		if err != nil {
			return nil, err
		}
		return command{argv: append(argv, j.Argv...), env: j.environ(), dir: j.Workspace}.runner(), nil
	}}
}

// contenders are all of them, the baselines first. A new one is a line here.
func (l *lab) contenders(ctx context.Context) []contender {
	all := []contender{
		wrapped(plainName, false, func(*lab, job) ([]string, error) { return nil, nil }),
	}
	if _, ok := l.peers["bwrap"]; ok {
		all = append(all, contender{name: "bwrap", open: openBwrap})
	}
	if p, ok := l.peers["firejail"]; ok {
		all = append(all, wrapped("firejail", true, p.firejail))
	}
	if p, ok := l.peers["landrun"]; ok {
		all = append(all, wrapped("landrun", true, p.landrun))
	}
	if p, ok := l.peers["srt"]; ok {
		all = append(all, contender{name: "srt", slow: true, open: p.openSrt})
	}
	return append(all, l.ownContenders(ctx)...)
}

// usable returns the contenders that really run a command here and really keep
// it from writing where it must not: a sandbox that is not there would win
// every race.
func (l *lab) usable(ctx context.Context) ([]contender, error) {
	var out []contender
	for _, c := range l.contenders(ctx) {
		err := l.check(ctx, c)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			l.skip(c.name, err)
			continue
		}
		out = append(out, c)
	}
	return out, nil
}

func (l *lab) check(ctx context.Context, c contender) (err error) {
	dir, err := l.folder("check")
	if err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	inside, outside := filepath.Join(dir, "inside"), filepath.Join(l.outside, "canary")
	defer os.Remove(inside)
	defer os.Remove(outside)
	script := fmt.Sprintf("{ echo x >%s; } 2>/dev/null; echo x >%s", quote(outside), quote(inside))
	r, err := c.open(ctx, l, job{Argv: []string{"sh", "-c", script}, Workspace: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.run(ctx); err != nil {
		return r.process.why(ctx, err)
	}
	switch {
	case !exists(inside):
		return errors.New("its command could not write the workspace")
	case c.name != plainName && exists(outside):
		return errors.New("its command could write outside of the workspace")
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// quote makes a word for the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
