package supervise

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/sysprog"
)

// F11: a file that is replaced just before it is covered makes the plan be made
// again, and is no fault of the sandbox.
func TestReplacedBeforeItIsCovered(t *testing.T) {
	for _, tt := range []struct {
		step    sysprog.Step
		errno   unix.Errno
		changed string
	}{
		{sysprog.Step{Call: "move_mount", Label: "hidden /home/ana/.netrc", Args: []sysprog.Arg{sysprog.FD(3), sysprog.Str("")}}, unix.ENOENT, "hidden /home/ana/.netrc"},
		{sysprog.Step{Call: "openat2", Label: "hidden /a", Args: []sysprog.Arg{sysprog.FD(3), sysprog.Str("a")}}, unix.ENOENT, "a"},
		{sysprog.Step{Call: "move_mount", Label: "hidden /a"}, unix.EPERM, ""},
	} {
		err := stepError(&backend.Launch{Backend: "native"}, nil, &sysprog.StepError{Step: tt.step, Errno: tt.errno})
		var changed *ChangedError
		if got := errors.As(err, &changed); got != (tt.changed != "") || got && changed.Path != tt.changed {
			t.Errorf("%s: %v", tt.step.Label, err)
		}
	}
}
