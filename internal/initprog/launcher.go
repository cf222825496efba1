package initprog

import "strconv"

// A LaunchConfig says what the launcher does. It runs the program of system calls
// in a new process, which becomes the init and starts the command; it forwards
// signals to it, and ends as the command does: with its exit code, or by the same
// signal. If a step of the program fails it says so on standard error and exits
// with 125; a command that cannot be executed gives 126 or 127.
//
// Killing the launcher ends the sandbox.
type LaunchConfig struct {
	// ImageFD is the descriptor of a program that sysprog.ExportCommand exported
	// with explanations.
	ImageFD int
	// KeepFDs is how many descriptors from 3 on belong to the command.
	KeepFDs int
	// FreeFD is the first number above all descriptors that the launcher is
	// given. The program finds the init's status at FreeFD+StatusEnd, and the
	// ends of its rendezvous at FreeFD+SyncChildEnd and FreeFD+SyncParentEnd.
	FreeFD int
	// UIDMap and GIDMap are written for a program that waits for its parent. They
	// are empty for one that does not.
	UIDMap, GIDMap string
	// Path is the command, for messages.
	Path string
}

// What the launcher makes, by its place behind LaunchConfig.FreeFD: the same
// numbers as in launch.c.
const (
	StatusEnd = iota
	SyncChildEnd
	SyncParentEnd
)

// Argv returns the arguments that the launcher is started with; argv0 is the
// name it goes by.
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
