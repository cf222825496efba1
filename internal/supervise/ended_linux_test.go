package supervise

import (
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// N10: what is seen of a process before it is reaped is what reaping it tells.
func TestSeeEnd(t *testing.T) {
	for _, script := range []string{"exit 0", "exit 7", "exit 255", "kill -TERM $$", "kill -KILL $$"} {
		pidfd := -1
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{PidFD: &pidfd}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		seen := seeEnd(pidfd)
		_ = cmd.Wait() // with the status of the script
		unix.Close(pidfd)
		if seen == nil {
			t.Fatalf("%s: nothing was seen", script)
		}
		state := cmd.ProcessState
		if seen.Sys() != state.Sys() || seen.Exited() != state.Exited() || seen.String() != state.String() {
			t.Errorf("%s: saw %v, and it was %v", script, seen, state)
		}
		if maxRSS(seen) != maxRSS(state) || seen.UserTime() > state.UserTime() || seen.SystemTime() > state.SystemTime() {
			t.Errorf("%s: it used %+v, and then %+v", script, seen.usage, state.SysUsage())
		}
	}
	if seen := seeEnd(-1); seen != nil {
		t.Errorf("saw %v of no process", seen)
	}
}
