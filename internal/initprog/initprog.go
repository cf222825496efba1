// Package initprog holds cloche's two static programs: the init, which is the
// first process of a sandbox, and the launcher, which makes a sandbox for a caller
// that has to execute something.
//
// The init starts the command, reaps orphans, forwards signals, reports over a pipe how
// the command went, and ends the whole tree when its supervisor is gone.
//
// The programs are C without a library (init.c, launch.c), a few KB each, built
// reproducibly by build.sh and embedded here. The init is not a fork of the Go process: such a fork
// would keep the supervisor's memory, secrets included, within reach of the
// command, and would cost more the larger the heap is.
//
// As pid 1 of a pid namespace its own exit is what makes the kernel kill
// everything that is left. Where there is no such namespace it adopts orphans
// and kills them itself before it exits: see [Config].
//
// Both can run a program of system calls that package sysprog exports (interp.h):
// the launcher one that makes the sandbox and executes the init, the init one
// that confines the command further.
//
// # Why an init of our own
//
// The init reports over a pipe whether the command started, with which errno it did
// not, and how it ended, so that a failed set-up is never confused with the command's
// own failure. It holds one end of the lifeline, a pipe whose other end only the
// supervisor has; end of file ends the whole tree. It gives the command the terminal
// and its own process group, so that Ctrl-Z works, and sets the resource limits inside
// the user namespace, where they count for this run alone.
//
// # The launcher
//
// Session.Wrap rewrites an exec.Cmd, which has to execute a program: the launcher,
// from a sealed file in memory. A second descriptor is the program of system calls
// (sysprog.ExportCommand), laid out for one fixed address. The environment stays with
// the exec.Cmd, where the caller can still add to it.
//
// The launcher maps that file, clones into the namespaces, and its child interprets
// the records. For root it writes the id maps while the child waits. Progress is in
// memory that both share, so that a failed step is reported as by cloche run. Then it
// forwards signals, reads the init's reports, closes the command's descriptors so that
// readers see the end of a pipe, and ends as the command did, by the same signal.
//
// Nothing outlives it. The init's lifeline is the session's, held by the caller, and
// only the launcher reads the init's status pipe; the init ends the tree when either
// is gone. The launcher never stops itself: a stopped command that is continued from
// inside would end unseen.
package initprog

import (
	"errors"
	"strconv"
)

// ErrUnsupported is returned by [Binary] and [Launcher] on a platform that the
// programs are not built for.
var ErrUnsupported = errors.New("there is no init program for this platform (linux/amd64 and linux/arm64 have one)")

// None leaves a descriptor or a limit of a [Config] out.
const None = -1

// A Config says what the init does.
type Config struct {
	// StatusFD is the descriptor that records are written to, LifelineFD the
	// read end of a pipe whose end of file means that the supervisor is gone. So
	// does a pipe for the status that nobody can read any more. Both lie above the descriptors of the command, or are None.
	StatusFD, LifelineFD int
	// Terminal makes standard input the controlling terminal of the command.
	Terminal bool
	// Adopt is for an init that is not pid 1 of a pid namespace. Every orphan of
	// the sandbox becomes its child, and when the command ends or the lifeline
	// is lost it kills all its descendants, waits until they are gone, and only
	// then exits. Killing the init itself would let them go.
	Adopt bool
	// Scope, which counts only with Adopt, is for kernels whose Landlock keeps
	// signals in (ABI 6, Linux 6.12). The command then cannot reach the init,
	// and all descendants are killed by one call that none can outrun. Without
	// it the command can kill the init, and descendants are found in /proc.
	Scope bool
	// Park makes the init start no command. As pid 1 it holds its pid namespace
	// open for others to join, reaps their orphans, and ends all of them when the
	// lifeline is lost.
	Park bool
	// Await makes the init wait for its command when all else is done: see [Order].
	// StatusFD is a unix stream socket then, and the command comes over it; if the
	// other end is closed first, the init ends. Path and Args are not used, and
	// KeepFDs is 0.
	Await bool
	// Become, which counts only with Await, makes the process that waits the
	// command itself: there is no init then, and nothing is reported but an error.
	// The end of file on the socket says that the command was executed.
	Become bool
	// ProgramFD is a program of system calls, as package sysprog exports one that
	// executes nothing, in a file. The process of the command runs it last, just
	// before it executes the command: what it takes away is taken from the
	// command and not from the init. It lies above the descriptors of the command; 0
	// is none. ProgramFiles is how many descriptors directly behind it are for
	// the program. The command has none of them.
	ProgramFD, ProgramFiles int
	// KeepFDs is how many descriptors from 3 on belong to the command. Every
	// other descriptor is closed before the command starts.
	KeepFDs int
	// Processes, OpenFiles and FileSize are resource limits of the command; a
	// negative one is left as it is. The kernel counts the init as one of the
	// Processes, and ignores that limit for user 0 of the host.
	Processes, OpenFiles, FileSize int64
	// Path is the program to run, Args its arguments with Args[0] its name.
	// Empty Args stand for the Path alone.
	Path string
	Args []string
}

// Argv returns the arguments that the init is started with; argv0 is the path
// or name it goes by.
func (c Config) Argv(argv0 string) []string {
	flags := 0
	for i, set := range []bool{c.Terminal, c.Adopt, c.Scope, c.Park, c.Await, c.Become} { // the order of the bits in init.c
		if set {
			flags |= 1 << i
		}
	}
	argv := []string{argv0}
	for _, n := range []int64{
		int64(c.StatusFD), int64(c.LifelineFD), int64(flags), int64(c.KeepFDs),
		c.Processes, c.OpenFiles, c.FileSize,
	} {
		argv = append(argv, strconv.FormatInt(max(n, None), 10))
	}
	if c.ProgramFD > 0 {
		argv = append(argv, strconv.Itoa(c.ProgramFD), strconv.Itoa(c.ProgramFiles))
	}
	if c.Park {
		return append(argv, "--", "parked", "parked")
	}
	if c.Await {
		return append(argv, "--")
	}
	argv = append(argv, "--", c.Path)
	if len(c.Args) == 0 {
		return append(argv, c.Path)
	}
	return append(argv, c.Args...)
}

// Binary returns the program for this platform, a static ELF file. The slice is
// shared and must not be changed.
func Binary() ([]byte, error) {
	if len(program) == 0 {
		return nil, ErrUnsupported
	}
	return program, nil
}
