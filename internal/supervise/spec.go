package supervise

import (
	"context"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/notify"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
)

// A Spec is one run: what a backend compiled, the limits that the supervisor enforces, and the
// standard streams.
//
// The limits Output, Memory and Processes have no default: zero means zero, and
// policy.Unlimited means no limit.
type Spec struct {
	// Launch is what to start.
	Launch *backend.Launch
	// Command is the path of the command inside, for error messages.
	Command string
	// Plan is what the launch was compiled from. A Guard needs its rules.
	Plan *plan.Plan
	// Parked is the sandbox that the launch enters, or nil. It has been acquired; Start or the
	// end of the run gives it back.
	Parked *Parked
	// Ahead, unless nil, is a process that was made before the launch was known. Start uses it
	// or ends it.
	Ahead *sysprog.Ahead

	// Ask, unless nil, is called about each operation that the guard would deny, while the
	// call waits.
	Ask Ask
	// Lock is the file that the guards of all sandboxes of a user lock while they decide about
	// a change and make it; empty means no lock.
	Lock string
	// Refused, unless nil, is called once with the denials of a wrapped command, when its last
	// process has ended or when it is certain that it will never start.
	Refused func(denied []plan.Denial, more int)

	// Network makes the network of a launch whose network the supervisor makes: see
	// backend.Launch.Network.
	Network MakeNetwork
	// NoNetwork, unless nil, is called for a wrapped command whose network was not made:
	// because of err or, if err is nil, because the command was never started.
	NoNetwork func(err error)

	// ToEnd: Start returns when the command has ended, because nobody needs the Process
	// before. Start then waits itself. Without this, a short command of a WithWarmFast session
	// takes 1.33 instead of 1.23 times as long as without a sandbox: one goroutine is woken
	// when the command runs, and another one when it has ended.
	ToEnd bool

	// Timeout ends the run after that wall time; 0 means no limit.
	Timeout time.Duration
	// KillDelay is the time between SIGTERM and SIGKILL for a run that timed out or was
	// canceled. With 0 it is killed at once.
	KillDelay time.Duration
	// Output limits the bytes of standard output and error together.
	Output int64
	// Memory limits the bytes of memory in the whole tree. It is sampled every 100 ms: a burst
	// between two samples is not noticed. Anonymous and shared memory count, once for each
	// process that has it mapped. Pages of files do not count, because the kernel can take
	// them back.
	Memory int64
	// Processes limits the processes and threads of the tree. The init enforces it exactly, by
	// RLIMIT_NPROC in the sandbox's user namespace. It is sampled like Memory for user 0 of
	// the host, whom the kernel exempts, for a launch without an init, and for one without a
	// user namespace.
	Processes int64

	// Stdin, Stdout and Stderr are the command's; nil is the null device. An *os.File that is
	// a terminal, a socket or a device such as null is passed on itself, unless Output is
	// limited or the command has its own terminal. Files and pipes are copied, because the
	// command could reopen them with more access. If Stdin is a pipe, no more is taken from it
	// than the command reads. If Stdout and Stderr are the same writer, at most one goroutine
	// at a time writes to it.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// ExtraFiles become descriptor 3 and up. Launch.FirstFD is the number after the last of
	// them.
	ExtraFiles []*os.File
	// Terminal gives the command a terminal of its own: see [Wants].
	Terminal bool
}

// An Ask waits until somebody decides about a denied call, or until ctx ends. It returns the
// line that allows the call, and the time until which the line applies; zero means until the
// end of the run.
type Ask func(ctx context.Context, d plan.Denial) (line plan.Path, until time.Time, ok bool)

// A MakeNetwork makes a network in the network namespace of a sandbox. The command does not
// run before it returns, and never if it fails. The returned closer is closed when the sandbox
// has ended.
type MakeNetwork func(netns *os.File) (io.Closer, error)

// An Outcome is how a run ended.
type Outcome struct {
	// ExitCode is the command's exit code, or 128 plus the number of the signal that ended it.
	ExitCode int
	// Signal is the signal that ended the command, or 0.
	Signal syscall.Signal
	// TimedOut and Canceled: the supervisor ended the run for that reason.
	TimedOut, Canceled bool
	// Truncated: the output exceeded its limit and was cut.
	Truncated bool
	// Exceeded names the limit because of which the run was ended: "output", "memory" or
	// "processes".
	Exceeded string
	// Denied are the guard's denials.
	Denied []plan.Denial
	// DeniedMore counts the denials not listed in Denied.
	DeniedMore int

	// Duration is the wall time from the start of the launcher.
	Duration time.Duration
	// UserTime and SystemTime are those of the whole tree, including the launcher.
	UserTime, SystemTime time.Duration
	// MaxRSS is the largest resident size, in bytes, of any process of the tree, or 0 if
	// unknown. It is never below the supervisor's own size before exec, which the kernel
	// carries over.
	MaxRSS int64
}

// program returns the program that a launch executes.
func program(l *backend.Launch) string {
	if l.Path != "" {
		return l.Path
	}
	return l.Argv[0]
}

// CommandLine returns the command line of a process by its pid on the host, or nil if it has
// ended. It may contain secrets.
func CommandLine(pid int) []string { return notify.CommandLine(pid) }
