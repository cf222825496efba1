package apitest

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/cloche-dev/cloche"
)

// N10 F12: a command gives its own parent a child. There is none: it would be the
// caller's, and outlive the command.
func TestWarmMakesNoSibling(t *testing.T) {
	eachWarm(t, func(t *testing.T, s *cloche.Session, _ string) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Command(t.Context(), self, helperWord, "sibling").Capture()
		if err != nil || r.Success() || !strings.Contains(string(r.Stdout), "not permitted") {
			t.Errorf("%v, %s", err, brief(r))
		}
		if left := sleepers(t, siblingTime); left != 0 {
			t.Errorf("%d processes are left", left)
		}
	})
}

// siblingTime is what the process sleeps, and what it is known by.
const siblingTime = "7.7007"

// leaveSibling starts a process beside this one.
func leaveSibling() error {
	cmd := exec.Command("sleep", siblingTime)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_PARENT}
	return cmd.Start()
}
