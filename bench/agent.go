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
	"github.com/cloche-dev/cloche/internal/agenttest"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// The contenders of the scenario agent.
const (
	agentAlone     = "the agent alone"
	agentInstalled = "cloche agent install"
)

// benchAgent is the agent that is measured.
const benchAgent = "claude"

// agentName is the name of the scenario.
const agentName = "agent"

var agentGoals = []report.Goal{
	{What: "an agent that calls `echo` 100 times", Title: agentTitle(agentCalls), Row: agentInstalled, Baseline: agentAlone, Most: 1.2},
}

// agentCalls are the calls in one conversation.
const (
	agentCalls      = 100
	quickAgentCalls = 5
)

func agentTitle(calls int) string {
	return fmt.Sprintf("Claude Code calls `echo` %d times", calls)
}

// agentCases ask what a real agent pays whose shell commands each run in a sandbox.
func agentCases(_ context.Context, l *lab) ([]benchCase, error) {
	if reason := testenv.Lacks("agents"); reason != "" {
		return nil, errors.New(reason)
	}
	dir, err := l.folder("agent")
	if err != nil {
		return nil, err
	}
	calls := agentCalls
	if l.quick {
		calls = quickAgentCalls
	}
	return []benchCase{{
		title: agentTitle(calls), job: job{Workspace: dir}, wants: everybody, baselines: []string{agentAlone},
		contenders: []contender{
			{name: agentAlone, open: agentOpener(calls, false)},
			{name: agentInstalled, own: true, open: agentOpener(calls, true)},
		},
		unit: report.Seconds, budget: 2 * time.Minute, sampler: ownSampler,
	}}, nil
}

// agentOpener returns what starts the agent with a home folder of its own, with cloche installed or
// not, and measures a conversation.
func agentOpener(calls int, installed bool) func(context.Context, *lab, job) (*runner, error) {
	return func(ctx context.Context, l *lab, j job) (*runner, error) {
		home, err := os.MkdirTemp(l.dir, "agent-home-")
		if err != nil {
			return nil, err
		}
		c := conversation{home: home, workspace: j.Workspace}
		if installed {
			if _, err := c.start(ctx, nil, l.cloche, "agent", "install", benchAgent); err != nil {
				return nil, err
			}
		}
		// The canary of the other contenders: a sandbox that is not there would cost nothing.
		outside := filepath.Join(l.outside, "canary")
		defer os.Remove(outside)
		if _, err := c.hold(ctx, "touch "+quote(outside)+" || true"); err != nil {
			return nil, err
		}
		if escaped := exists(outside); escaped == installed {
			return nil, fmt.Errorf("a command could write outside of the workspace: %v, with cloche installed: %v", escaped, installed)
		}
		echoes := slices.Repeat([]string{"echo hello"}, calls)
		return &runner{sample: func(ctx context.Context) (float64, error) { return c.hold(ctx, echoes...) }, close: func() error { return nil }}, nil
	}
}

// A conversation is one of the agent with a scripted model.
type conversation struct {
	home, workspace string
}

// hold has the agent run the commands, and returns how long that took.
func (c conversation) hold(ctx context.Context, commands ...string) (float64, error) {
	model, end := agenttest.Serve(commands...)
	defer end()
	s, err := agenttest.Settings(benchAgent, c.home, model)
	if err != nil {
		return 0, err
	}
	took, err := c.start(ctx, s.Env, slices.Concat(s.Program, s.Args)...)
	if err != nil {
		return 0, err
	}
	results := model.Results()
	if len(results) != len(commands) {
		return 0, fmt.Errorf("the agent ran %d of %d commands", len(results), len(commands))
	}
	for i, command := range commands {
		if want, ok := strings.CutPrefix(command, "echo "); ok && strings.TrimSpace(results[i]) != want {
			return 0, fmt.Errorf("%s printed %q", command, results[i])
		}
	}
	return took.Seconds(), nil
}

// start runs a program as the agent's user, and returns how long that took.
func (c conversation) start(ctx context.Context, env []string, argv ...string) (time.Duration, error) {
	cmd := command{argv: argv, env: append(append(os.Environ(), "HOME="+c.home), env...), dir: c.workspace}.cmd(ctx)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		return 0, fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, lastLines(string(out), 2))
	}
	return took, err
}
