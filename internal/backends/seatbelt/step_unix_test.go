//go:build unix

package seatbelt

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// F11 A6: the step inside says that it runs before the command does, hands the
// command its arguments as they are and its name, sets the limits, and leaves
// neither descriptor nor variables behind. It is a shell's, so it is run by one.
func TestStep(t *testing.T) {
	testenv.Need(t, "bash")
	p := &plan.Plan{
		Command: &plan.Command{Path: "/bin/bash", Args: []string{"own name", "-c", `echo "$0|$1|$(ulimit -n)|$(ulimit -f)"; env; (echo x >&3) 2>/dev/null && echo open; true`, "zero", "a b;$(id)"}},
		Limits:  []plan.Limit{{Name: plan.LimitOpenFiles, Value: 64}, {Name: plan.LimitFileSize, Value: 4096}},
	}
	argv := arguments(p, "PROFILE", 3)
	ours, childs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	c := exec.Command(argv[3], argv[4:]...)
	c.Env, c.ExtraFiles = []string{"A=1"}, []*os.File{childs}
	out, err := c.CombinedOutput()
	childs.Close()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if said, err := io.ReadAll(ours); err != nil || string(said) != "." {
		t.Errorf("it said %q (%v)", said, err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if !strings.HasPrefix(lines[0], "zero|a b;$(id)|64|4") || slices.Contains(lines, "open") || !slices.Contains(lines, "A=1") {
		t.Errorf("output %q", lines)
	}
}

// A step that cannot say that it runs does not go on.
func TestStepWithoutDescriptor(t *testing.T) {
	testenv.Need(t, "bash")
	p := &plan.Plan{Command: &plan.Command{Path: "/bin/echo", Args: []string{"echo", "ran"}}}
	argv := arguments(p, "PROFILE", 3)
	c := exec.Command(argv[3], argv[4:]...)
	out, err := c.Output()
	if err == nil || len(out) > 0 || c.ProcessState.ExitCode() != 125 {
		t.Errorf("%v: %q", err, out)
	}
}

// A11: what a trial shows, of each way in which it may end.
func TestClassify(t *testing.T) {
	for _, c := range []struct {
		trial   trial
		outcome host.Outcome
		cause   string
	}{
		{trial{code: 1, inside: true}, host.Yes, cause.None},
		{trial{inside: true, wrote: true}, host.No, cause.TooOld},
		{trial{code: 71, detail: "sandbox-exec: sandbox_apply: Operation not permitted\n"}, host.No, cause.Nested},
		{trial{code: 65, detail: "sandbox-exec: unbound variable"}, host.No, cause.TooOld},
		{trial{code: -1}, host.Unknown, cause.None},
	} {
		if p := classify(c.trial); p.Outcome != c.outcome || p.Cause != c.cause || p.Outcome != host.Yes && p.Reason == "" {
			t.Errorf("%+v: %+v", c.trial, p)
		}
	}
	parsed(t, trialPlan())
}
