// Package initprog contains cloche's two static programs: the init, which is the first process
// of a sandbox, and the launcher, which makes a sandbox for a caller that can only execute a
// program.
//
// The init starts the command, reaps orphans, forwards signals, reports over a pipe how the
// command ended, and ends the whole tree when its supervisor is gone.
//
// The programs are C without a library (init.c, launch.c), a few KB each, built reproducibly
// by build.sh and embedded here. The init is not a fork of the Go process: a fork would keep
// the supervisor's memory, with its secrets, accessible to the command, and would cost more
// the larger the heap is.
//
// As pid 1 of a pid namespace, its exit makes the kernel kill all remaining processes. Without
// such a namespace, it adopts orphans and kills them itself before it exits: see [Config].
//
// Both can run a program of system calls that package sysprog exports (interp.h): the launcher
// runs one that makes the sandbox and executes the init, the init one that confines the
// command further.
//
// # Why an init of our own
//
// The init reports over a pipe whether the command started, the errno if it did not, and how
// it ended, so that a failed setup is never confused with the command's own failure. It holds
// one end of the lifeline, a pipe whose other end only the supervisor has; at end of file it
// ends the whole tree. It gives the command the terminal and its own process group, so that
// Ctrl-Z works, and sets the resource limits inside the user namespace, where they apply to
// this run only.
//
// # The launcher
//
// Session.Wrap rewrites an exec.Cmd so that it executes the launcher, from a sealed memory
// file. A second descriptor is the program of system calls (sysprog.ExportCommand), laid out
// for one fixed address. The environment stays in the exec.Cmd, where the caller can still add
// to it.
//
// The launcher maps that file and clones into the namespaces, and its child runs the records.
// For root it writes the id maps while the child waits. Progress is in memory that both share,
// so that a failed step is reported in the same way as by cloche run. Then the launcher
// forwards signals, reads the init's reports, closes the command's descriptors so that readers
// see the end of a pipe, and ends as the command did, by the same signal.
//
// Nothing outlives the launcher. The init's lifeline is the session's, held by the caller, and
// only the launcher reads the init's status pipe; the init ends the tree when either is
// closed. The launcher never stops itself: if a stopped command were continued from inside,
// nobody would notice its end.
package initprog

import (
	"errors"
	"strconv"
)

// ErrUnsupported is returned by [Binary] and [Launcher] on a platform for which the programs
// are not built.
var ErrUnsupported = errors.New("there is no init program for this platform (linux/amd64 and linux/arm64 have one)")

// None stands for a missing descriptor or limit in a [Config].
const None = -1

// A Config configures the init.
type Config struct {
	// StatusFD is the descriptor to which records are written. LifelineFD is the read end of a
	// pipe whose end of file means that the supervisor is gone; a status pipe without readers
	// means the same. Both are above the descriptors of the command, or None.
	StatusFD, LifelineFD int
	// Terminal makes standard input the controlling terminal of the command.
	Terminal bool
	// Adopt is for an init that is not pid 1 of a pid namespace. Every orphan of the sandbox
	// becomes its child. When the command ends or the lifeline closes, the init kills all its
	// descendants, waits until they have ended, and only then exits. If the init itself is
	// killed, they live on.
	Adopt bool
	// Scope, which only has an effect with Adopt, is for kernels whose Landlock can restrict
	// signals (ABI 6, Linux 6.12). The command then cannot signal the init, and one call kills
	// all descendants, which none can escape by forking. Without it, the command can kill the
	// init, and descendants are found in /proc.
	Scope bool
	// Park: the init starts no command. As pid 1 it keeps its pid namespace open for others to
	// join, reaps their orphans, and ends all of them when the lifeline closes.
	Park bool
	// Await: the init waits for its command after everything else is done: see [Order].
	// StatusFD is then a unix stream socket over which the command arrives; if the other end
	// is closed first, the init ends. Path and Args are not used, and KeepFDs is 0.
	Await bool
	// Become, which only has an effect with Await: the waiting process executes the command
	// itself, so that there is no init, and only errors are reported. End of file on the
	// socket means that the command was executed.
	Become bool
	// ProgramFD is a file with a program of system calls that executes nothing, as exported by
	// package sysprog. The command's process runs it just before it executes the command, so
	// that it restricts the command and not the init. It is above the descriptors of the
	// command; 0 means none. ProgramFiles is the number of descriptors directly after it that
	// are for the program. The command gets none of them.
	ProgramFD, ProgramFiles int
	// KeepFDs is the number of descriptors, from 3 on, that belong to the command. All others
	// are closed before the command starts.
	KeepFDs int
	// Processes, OpenFiles and FileSize are resource limits of the command. A negative one is
	// not set. The kernel counts the init as one of the Processes, and ignores that limit for
	// user 0 of the host.
	Processes, OpenFiles, FileSize int64
	// Path is the program to run, Args its arguments with Args[0] its name. If Args is empty,
	// the only argument is Path.
	Path string
	Args []string
}

// Argv returns the init's arguments; argv0 is its path or name.
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

// Binary returns the init for this platform, a static ELF file. The slice is shared and must
// not be changed.
func Binary() ([]byte, error) {
	if len(program) == 0 {
		return nil, ErrUnsupported
	}
	return program, nil
}
