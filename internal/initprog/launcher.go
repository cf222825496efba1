package initprog

import "strconv"

// A LaunchConfig configures the launcher. The launcher runs the program of system calls in a
// new process, which executes the init, which starts the command. It forwards signals to the
// init, and ends as the command does: with its exit code, or by the same signal. If a step of
// the program fails, the launcher prints an error and exits with 125; if the command cannot be
// executed, it exits with 126 or 127.
//
// Killing the launcher ends the sandbox.
type LaunchConfig struct {
	// ImageFD is the descriptor of a program that sysprog.ExportCommand exported with
	// explanations.
	ImageFD int
	// KeepFDs is the number of descriptors, from 3 on, that belong to the command.
	KeepFDs int
	// FreeFD is the first number above all of the launcher's descriptors. The program finds
	// the init's status at FreeFD+StatusEnd, and the ends of its rendezvous at
	// FreeFD+SyncChildEnd and FreeFD+SyncParentEnd.
	FreeFD int
	// UIDMap and GIDMap are written for a program that waits for its parent. They are empty
	// for other programs.
	UIDMap, GIDMap string
	// Path is the command, for messages.
	Path string
}

// The descriptors that the launcher makes, relative to LaunchConfig.FreeFD. launch.c has the
// same numbers.
const (
	StatusEnd = iota
	SyncChildEnd
	SyncParentEnd
)

// Argv returns the launcher's arguments; argv0 is its name.
func (c LaunchConfig) Argv(argv0 string) []string {
	return []string{
		argv0, strconv.Itoa(c.ImageFD), strconv.Itoa(c.KeepFDs), strconv.Itoa(c.FreeFD), c.UIDMap, c.GIDMap, "--", c.Path,
	}
}

// Launcher returns the launcher for this platform, a static ELF file. The slice
// is shared and must not be changed.
func Launcher() ([]byte, error) {
	if len(launcher) == 0 {
		return nil, ErrUnsupported
	}
	return launcher, nil
}
