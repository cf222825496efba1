package apitest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// C1: a step that fails is reported with the rule behind it, and the command does
// not run.
func TestWrapExplainsFailedStep(t *testing.T) {
	testenv.Need(t, "userns")
	testenv.AlsoAsUser(t)
	dir, other := workspace(t), workspace(t)
	p := policy.Workspace(dir).With(policy.AllowWrite(other), policy.WithBackend("native"))
	c := wrap(t, open(t, p, dir), dir, "echo ran")
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	out, err := c.CombinedOutput()
	if err == nil || c.ProcessState.ExitCode() != 125 {
		t.Errorf("ended with %v", err)
	}
	for _, want := range []string{"cloche: backend native could not set up the sandbox: ", "step ", other, "openat2: ENOENT", "(rule ", "prepare it again"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in %q", want, out)
		}
	}
	if strings.Contains(string(out), "ran") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("output %q", out)
	}
}

// C1: so is a command that cannot be executed.
func TestWrapExplainsFailedExec(t *testing.T) {
	testenv.Need(t, "userns")
	dir := workspace(t)
	s := open(t, policy.Workspace(dir).With(policy.WithBackend("native")), dir)
	for code, spoil := range map[int]func(string) error{
		127: os.Remove,
		126: func(p string) error { return os.Chmod(p, 0o600) },
	} {
		script := filepath.Join(dir, fmt.Sprintf("script-%d", code))
		if err := os.WriteFile(script, []byte("#!/bin/sh\necho ran\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		c := exec.Command(script)
		c.Dir = dir
		if err := s.Wrap(c); err != nil {
			t.Fatal(err)
		}
		if err := spoil(script); err != nil {
			t.Fatal(err)
		}
		out, _ := c.CombinedOutput()
		if c.ProcessState.ExitCode() != code || !strings.HasPrefix(string(out), "cloche: cannot execute "+script+": E") {
			t.Errorf("exit code %d, want %d; output %q", c.ProcessState.ExitCode(), code, out)
		}
	}
}
