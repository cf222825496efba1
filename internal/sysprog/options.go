package sysprog

import "context"

// Options are what a run has of its own.
type Options struct {
	// CloneFlags are the namespaces to make, New… flags.
	CloneFlags uint64
	// Files are the descriptors that the program's files stand for, in the order
	// of Program.AddFile. They have to stay open until Run returns; the child has
	// copies.
	Files []int
	// Env is the environment of what is executed; nil is an empty one.
	Env []string
	// Argv are the arguments of what is executed, for a program that takes them
	// from here; Texts are its other strings, in the order of Program.AddText.
	Argv  []string
	Texts []string
	// ShareFiles lets the child share the table of descriptors: what it opens stays
	// open in the caller. That is how a socket of another network namespace is had
	// without a second process to pass it on. Such a program ends in an exit, and
	// neither closes nor moves what is not its own.
	ShareFiles bool
	// Ahead, unless nil, is the process that runs the program, if it has these clone
	// flags; SyncParent is then not called. Run ends it if it is of no use.
	Ahead *Ahead
	// Results, unless nil, is filled with what each step returned; a step that has
	// not run, or stands for several calls, has -1. It has room for all steps.
	Results []int64
	// SyncParent is called when the child has come to a [Block.SyncParent] and
	// waits there; it is required for a program that has one. It runs in another
	// goroutine than Run. If it returns an error, the child is killed and Run
	// returns that error.
	SyncParent func(*Child) error
}

// Run runs the program in a new process and returns once the last step, usually
// an execve, has succeeded. A step that fails is a [*StepError], and a process
// that could not be made a [*CloneError]; nothing is then left of the process.
//
// When ctx ends before the program does, the process is killed and Run returns
// the cause. Run can be called from any goroutine, at the same time too.
func Run(ctx context.Context, p *Program, o Options) (*Process, error) {
	im, err := Load(p)
	if err != nil {
		return nil, err
	}
	return im.Run(ctx, o)
}
