package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/policy"
)

// A SetupError says that the sandbox could not be made: the command never ran. It is derived
// from the launcher's reports on its status descriptors, never from its output.
type SetupError struct {
	// Backend is the backend that made the launch.
	Backend string
	// Step is what failed, such as "start the launcher".
	Step string
	// Detail explains the failure.
	Detail string
	// Err is the underlying error, or nil.
	Err error
}

// Error names the backend, the step and the reason.
func (e *SetupError) Error() string {
	s := fmt.Sprintf("backend %s could not set up the sandbox: %s", e.Backend, e.Step)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the underlying error.
func (e *SetupError) Unwrap() error { return e.Err }

// An ExecError says that the command could not be executed.
type ExecError struct {
	// Path is the command's path inside.
	Path  string
	Errno syscall.Errno
}

// Error names the command and the reason.
func (e *ExecError) Error() string { return fmt.Sprintf("cannot execute %s: %v", e.Path, e.Errno) }

// Unwrap returns the errno.
func (e *ExecError) Unwrap() error { return e.Errno }

// ExitCode returns the shell's exit code: 127 for a command that does not exist, 126 for one
// that cannot be executed.
func (e *ExecError) ExitCode() int {
	if errors.Is(e.Errno, fs.ErrNotExist) || e.Errno == syscall.ENOTDIR {
		return 127
	}
	return 126
}

// A ChangedError says that a path of the host has changed since the plan was made. A new plan
// may work; the old one would be enforced on another file.
type ChangedError struct {
	Path string
	// Want is the kind that the plan expects, or Missing if the path only has to exist.
	Want host.Kind
	// Err says how it differs.
	Err error
	// Origin is the rule behind the path, if there is one.
	Origin policy.Origin
}

// Error names the path and how it differs from the plan.
func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s changed since the plan was made: %v", e.Path, e.Err)
}

// Unwrap returns how the path differs.
func (e *ChangedError) Unwrap() error { return e.Err }

// Replaced reports whether a path was replaced by a symbolic link after the plan was made. A
// new plan would follow the link to a file that its creator chose.
func (e *ChangedError) Replaced() bool { return errors.Is(e.Err, syscall.ELOOP) }
