// Package initprog holds the static program that is the first process of a
// sandbox. It starts the command, reaps orphans, forwards signals, reports over a pipe how
// the command went, and ends the whole tree when its supervisor is gone.
//
// The program is C without a library (init.c), a few KB, built reproducibly by
// build.sh and embedded here. It is not a fork of the Go process: such a fork
// would keep the supervisor's memory, secrets included, within reach of the
// command, and would cost more the larger the heap is.
//
// As pid 1 of a pid namespace its own exit is what makes the kernel kill
// everything that is left. Where there is no such namespace it adopts orphans
// and kills them itself before it exits: see [Config].
package initprog

import (
	"errors"
	"strconv"
)

// ErrUnsupported is returned by [Binary] on a platform that the program is not
// built for.
var ErrUnsupported = errors.New("there is no init program for this platform (linux/amd64 and linux/arm64 have one)")

// None leaves a descriptor or a limit of a [Config] out.
const None = -1

// A Config says what the init does.
type Config struct {
	// StatusFD is the descriptor that records are written to, LifelineFD the
	// read end of a pipe whose end of file means that the supervisor is gone.
	// Both lie above the descriptors of the command, or are None.
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

// The flags, the same numbers as in init.c.
const (
	flagTerminal = 1 << iota
	flagAdopt
	flagScope
	flagPark
)

// Argv returns the arguments that the init is started with; argv0 is the path
// or name it goes by.
func (c Config) Argv(argv0 string) []string {
	flags := 0
	for flag, set := range map[int]bool{flagTerminal: c.Terminal, flagAdopt: c.Adopt, flagScope: c.Scope, flagPark: c.Park} {
		if set {
			flags |= flag
		}
	}
	argv := []string{argv0}
	for _, n := range []int64{
		int64(c.StatusFD), int64(c.LifelineFD), int64(flags), int64(c.KeepFDs),
		c.Processes, c.OpenFiles, c.FileSize,
	} {
		argv = append(argv, strconv.FormatInt(max(n, None), 10))
	}
	if c.Park {
		return append(argv, "--", "parked", "parked")
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
