package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/policy"
)

// A choice is one way to use cloche.
type choice struct {
	// Mode is one of the modes below.
	Mode    string
	Backend string
	// BestEffort: the backend cannot enforce the whole default policy here.
	BestEffort bool
	// warm: the backend can keep sandboxes ready.
	warm bool
}

// The modes.
const (
	modeCommand = "cloche run"   // the command, a process for each job
	modeLibrary = "library"      // cloche.Command, for each job anew
	modeSession = "session"      // one cloche.Session for all jobs
	modeWarm    = "warm session" // the same with its sandbox made once
	modeFast    = "fast session" // and with the processes of all jobs in it
)

// sessionOptions are those of the modes that have a session.
var sessionOptions = map[string][]cloche.Option{modeSession: nil, modeWarm: {cloche.WithWarm()}, modeFast: {cloche.WithWarmFast()}}

func (c choice) name() string {
	name := c.Mode + ", " + c.Backend
	if c.BestEffort {
		name += " (best effort)"
	}
	return name
}

// ownContenders are cloche's: each mode with each backend that works here.
func (l *lab) ownContenders(ctx context.Context) []contender {
	var all []contender
	for _, b := range l.backends(ctx) {
		modes := []string{modeCommand, modeLibrary, modeSession}
		if b.warm {
			modes = append(modes, modeWarm, modeFast)
		}
		for _, mode := range modes {
			b.Mode = mode
			all = append(all, b.contender())
		}
	}
	return all
}

// backends are those of the registry that pass their probe. The one that
// confines nothing is left out.
func (l *lab) backends(ctx context.Context) []choice {
	registry, err := cloche.DefaultRegistry(policy.Backend{})
	if err != nil {
		l.skip("cloche", err)
		return nil
	}
	snapshot, err := machine.Collect(l.dir)
	if err != nil {
		l.skip("cloche", err)
		return nil
	}
	var out []choice
	for _, e := range registry.All() {
		if e.Explicit {
			continue
		}
		name := e.Backend.Name()
		if err := e.Backend.Available(snapshot); err != nil {
			l.skip("cloche with backend "+name, err)
			continue
		}
		out = append(out, choice{Backend: name, BestEffort: hasGaps(ctx, name, l.outside), warm: name == "native"})
	}
	return out
}

// hasGaps reports whether the backend refuses the default policy for its gaps.
func hasGaps(ctx context.Context, name, workspace string) bool {
	_, err := cloche.Command(ctx, policy.Workspace(workspace).With(policy.WithBackend(name)), "true").Launch()
	var gaps *cloche.GapError
	return errors.As(err, &gaps)
}

func (c choice) contender() contender {
	open := map[string]func(context.Context, *lab, job) (*runner, error){
		modeCommand: c.openCommand, modeLibrary: c.openLibrary, modeSession: c.openSession, modeWarm: c.openSession, modeFast: c.openSession,
	}
	return contender{name: c.name(), own: true, open: open[c.Mode]}
}

// policy is cloche's default policy with what the job adds.
func (j job) policy() policy.Policy {
	p := policy.Workspace(j.Workspace).With(policy.AllowWrite(j.Write...), policy.AllowRead(j.Read...), policy.HidePaths(j.Hide...))
	for _, v := range j.Env {
		name, value := cutVariable(v)
		p = p.With(policy.WithEnv(name, value))
	}
	return p
}

func (c choice) policy(j job) policy.Policy {
	p := j.policy().With(policy.WithBackend(c.Backend))
	if c.BestEffort {
		p = p.With(policy.WithRequire(policy.BestEffort))
	}
	return p
}

// openCommand is the command. Rules go into a policy file, as people have them.
func (c choice) openCommand(_ context.Context, l *lab, j job) (*runner, error) {
	argv := []string{l.cloche, "run", "--backend", c.Backend}
	if c.BestEffort {
		argv = append(argv, "--best-effort")
	}
	for _, v := range j.Env {
		argv = append(argv, "--env", v)
	}
	if len(j.Read)+len(j.Write)+len(j.Hide) > 0 {
		file, err := l.policyFile(j)
		if err != nil {
			return nil, err
		}
		argv = append(argv, "--policy", file)
	}
	argv = append(append(argv, "--"), j.Argv...)
	return command{argv: argv, env: os.Environ(), dir: j.Workspace}.runner(), nil
}

// policyFile writes the job's rules. JSON is YAML, too.
func (l *lab) policyFile(j job) (string, error) {
	paths := map[string][]string{}
	for key, list := range map[string][]string{"read": j.Read, "write": j.Write, "hide": j.Hide} {
		if len(list) > 0 {
			paths[key] = list
		}
	}
	data, err := json.Marshal(map[string]any{"version": 1, "presets": []string{"workspace"}, "paths": paths})
	if err != nil {
		return "", err
	}
	file := filepath.Join(l.dir, fmt.Sprintf("policy-%s.yaml", filepath.Base(j.Workspace)))
	return file, os.WriteFile(file, data, 0o600)
}

// openLibrary makes policy, plan and launch anew for each job.
func (c choice) openLibrary(_ context.Context, _ *lab, j job) (*runner, error) {
	p := c.policy(j)
	return c.inProcess(j, nil, func(ctx context.Context) *cloche.Cmd {
		return cloche.Command(ctx, p, j.Argv[0], j.Argv[1:]...)
	})
}

// openSession opens one session for all jobs.
func (c choice) openSession(ctx context.Context, _ *lab, j job) (*runner, error) {
	session, err := c.session(ctx, j)
	if err != nil {
		return nil, err
	}
	return c.inProcess(j, session.Close, func(ctx context.Context) *cloche.Cmd {
		return session.Command(ctx, j.Argv[0], j.Argv[1:]...)
	})
}

func (c choice) session(ctx context.Context, j job) (*cloche.Session, error) {
	return cloche.Open(ctx, c.policy(j), append([]cloche.Option{cloche.WithWorkspace(j.Workspace)}, sessionOptions[c.Mode]...)...)
}

// inProcess is the runner of a way that needs no process besides this one.
func (c choice) inProcess(j job, done func() error, prepare func(context.Context) *cloche.Cmd) (*runner, error) {
	process, err := c.helper(j)
	if done == nil {
		done = func() error { return nil }
	}
	return &runner{process: process, close: done, run: func(ctx context.Context) error { return prepare(ctx).Run() }}, err
}
