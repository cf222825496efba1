package apitest

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/policy"
)

// C1: what cannot be wrapped is an error.
func TestWrapErrors(t *testing.T) {
	dir := workspace(t)
	s := open(t, policy.Workspace(dir).With(policy.WithBackend("none")), dir)
	for name, c := range map[string]*exec.Cmd{
		"empty":    {Args: []string{"x"}},
		"relative": {Path: "bin/x", Args: []string{"x"}},
		"missing":  exec.Command("no-such-command-here"),
	} {
		if err := s.Wrap(c); err == nil {
			t.Errorf("%s: wrapped", name)
		}
	}
	c := exec.Command("/bin/sh", "-c", "exit 0")
	c.Dir = dir
	if err := s.Wrap(c); err != nil {
		t.Fatal(err)
	}
	if err := s.Wrap(c); err == nil || !strings.Contains(err.Error(), "wrapped already") {
		t.Errorf("second wrap by none: %v", err)
	}
	if err := c.Run(); err != nil {
		t.Error(err)
	}
}
