package sysprog

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

// ErrUnsupported is returned by Run on platforms where programs cannot run.
var ErrUnsupported = fmt.Errorf("system call programs run on linux/amd64 and linux/arm64, not on %s/%s", runtime.GOOS, runtime.GOARCH)

// ErrNoStatus is returned by [Process.Wait] when the process has ended and its exit status is
// lost, because the caller ignores SIGCHLD or waits for any child elsewhere.
var ErrNoStatus = errors.New("the process has ended, but its exit status was taken by another wait, or SIGCHLD is ignored")

// A StepError says which step of a program failed. No process is left.
type StepError struct {
	Index int
	Step  Step
	// Errno is the error of the call. It is 0 if the call succeeded with another result than
	// Step.Want, and if Signal ended the process.
	Errno  syscall.Errno
	Result uint64
	Signal syscall.Signal
}

// Error says what failed, on which object, and by which rule.
func (e *StepError) Error() string {
	before, after := e.around()
	return before + e.reason() + after
}

func (e *StepError) reason() string {
	switch {
	case e.Step.Call == macroSameFile && e.Errno == 0 && e.Signal == 0:
		return "another file has taken the place of the one that was opened before"
	case e.Errno != 0:
		return Errno(e.Errno).String()
	case e.Signal != 0:
		return fmt.Sprintf("killed by signal %d", int(e.Signal))
	case e.Step.Want != nil:
		return fmt.Sprintf("returned %s, want %s", number(e.Result), number(*e.Step.Want))
	}
	return "the process ended before the program did"
}

// Unwrap returns the error number, so that errors.Is(err, fs.ErrNotExist) and the like work,
// or nil if there is none.
func (e *StepError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

// A CloneError says that the process could not be made at all.
type CloneError struct {
	Flags uint64
	Errno syscall.Errno
}

// Error names the requested namespaces, and what to check.
func (e *CloneError) Error() string {
	text := cloneText(e.Flags) + Errno(e.Errno).String()
	if hint := cloneHints[Errno(e.Errno)]; hint != "" {
		text += ": " + hint
	}
	return text
}

var cloneHints = map[Errno]string{
	EPERM: "namespaces are refused to this user; " +
		"look at kernel.apparmor_restrict_unprivileged_userns, kernel.unprivileged_userns_clone and the container's seccomp profile",
	11: "the limit of processes is reached (ulimit -u, pids.max)",
	12: "out of memory, or the pid namespace has no init any more",
	28: "a limit of namespaces is reached; look at /proc/sys/user/max_*_namespaces",
	87: "user namespaces are nested too deep, or /proc/sys/user/max_user_namespaces is 0",
}

// Unwrap returns the error number.
func (e *CloneError) Unwrap() error { return e.Errno }
