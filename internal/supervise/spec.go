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

// A Spec is one run: what a backend compiled, the limits that the supervisor
// keeps, and the standard descriptors.
//
// The limits that are zero are zero, not a default; policy.Unlimited is none.
type Spec struct {
	// Launch is what to start.
	Launch *backend.Launch
	// Command is the path of the command inside, for error messages.
	Command string
	// Plan is what the launch was compiled from. A Guard needs its rules.
	Plan *plan.Plan
	// Parked is the sandbox that the launch enters, for one that enters one. It
	// has been acquired, and Start or the end of the run gives it back.
	Parked *Parked
	// Ahead, unless nil, is the process that was made for the launch before that was
	// known. Start uses it, or ends it.
	Ahead *sysprog.Ahead

	// Ask, unless nil, is asked about what the guard would refuse, while the call
	// waits.
	Ask Ask
	// Lock is the file that the guards of a user's sandboxes lock while they judge and
	// make a change; empty is none.
	Lock string
	// Refused, unless nil, is told once what was refused to a wrapped command, when
	// its last process is gone or it turns out that there will be none.
	Refused func(denied []plan.Denial, more int)

	// Network makes the network of a launch that has one made by the supervisor:
	// see backend.Launch.Network.
	Network MakeNetwork
	// NoNetwork, unless nil, is called for a wrapped command whose network was not
	// made: because of err or, if that is nil, because it was never started.
	NoNetwork func(err error)

	// ToEnd: Start returns when the command has ended, and nobody needs the Process
	// before. Start then waits itself. Without this a short command of a fast session
	// takes 1.33 instead of 1.23 times as long as without a sandbox: one goroutine is
	// woken to learn that the command runs, and another one that it has ended.
	ToEnd bool

	// Timeout ends the run after that wall time; 0 is never.
	Timeout time.Duration
	// KillDelay is how long a run that is out of time or canceled has between
	// SIGTERM and SIGKILL. With 0 it is killed at once.
	KillDelay time.Duration
	// Output bounds the bytes of standard output and error together.
	Output int64
	// Memory bounds the bytes of memory in the whole tree. It is sampled every
	// 100 ms: a burst between two samples is not seen. What counts is anonymous
	// and shared memory, once for each process that has it mapped; pages of
	// files, which the kernel can take back, do not.
	Memory int64
	// Processes bounds the processes and threads of the tree. The init enforces
	// it exactly, by RLIMIT_NPROC in the sandbox's user namespace. For user 0
	// of the host, whom the kernel exempts, for a launch with no init, and for one
	// with no user namespace it is sampled like Memory.
	Processes int64

	// Stdin, Stdout and Stderr are the command's. An *os.File that is a terminal, a
	// socket or a device such as null is passed on itself, unless Output is bounded
	// or the command has a terminal; what could be opened again with more rights, as
	// files and pipes, is copied. Of a pipe that is Stdin no more is taken than the
	// command reads. nil is the null device. Where Stdout and Stderr are the same
	// writer, at most one goroutine at a time writes to it.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// ExtraFiles become the descriptors from 3 on. Launch.FirstFD is the number
	// after the last of them.
	ExtraFiles []*os.File
	// Terminal gives the command a terminal of its own: see [Wants].
	Terminal bool
}

// An Ask waits until somebody decides about a refused call, or until ctx ends. It
// returns the line that allows it, and the time at which that ends; zero is with
// the run.
type Ask func(ctx context.Context, d plan.Denial) (line plan.Path, until time.Time, ok bool)

// A MakeNetwork makes a network in a namespace that a sandbox has. The command
// does not run before it returns, and never if it fails. What it returns is closed
// when the sandbox is gone.
type MakeNetwork func(netns *os.File) (io.Closer, error)

// An Outcome is how a run went.
type Outcome struct {
	// ExitCode is the command's own, or 128 plus the number of the signal that
	// ended it.
	ExitCode int
	// Signal ended the command, or is 0.
	Signal syscall.Signal
	// TimedOut and Canceled: the supervisor ended the run for that reason.
	TimedOut, Canceled bool
	// Truncated: there was more output than allowed, and it was cut there.
	Truncated bool
	// Exceeded names the limit for which the run was ended: "output", "memory"
	// or "processes".
	Exceeded string
	// Denied is what the guard refused.
	Denied []plan.Denial
	// DeniedMore is how many refusals there were beside those.
	DeniedMore int

	// Duration is the wall time from the start of the launcher.
	Duration time.Duration
	// UserTime and SystemTime are of the whole tree, the launcher included.
	UserTime, SystemTime time.Duration
	// MaxRSS is the largest resident size, in bytes, of any process of the
	// tree. The kernel carries over the size of the supervisor itself from the
	// moment before exec, so no value below that is seen. 0 where unknown.
	MaxRSS int64
}

// program is what a launch executes.
func program(l *backend.Launch) string {
	if l.Path != "" {
		return l.Path
	}
	return l.Argv[0]
}

// CommandLine is the command line of a process as the host numbers it, or nil if
// it is gone. It may hold secrets.
func CommandLine(pid int) []string { return notify.CommandLine(pid) }
