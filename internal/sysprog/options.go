package sysprog

import "context"

// Options are the values for one run.
type Options struct {
	// CloneFlags are the namespaces to make, as New… flags.
	CloneFlags uint64
	// Files are the descriptors for the program's files, in the order of Program.AddFile. They
	// have to stay open until Run returns; the child has copies.
	Files []int
	// Env is the environment of the executed program; nil means an empty one.
	Env []string
	// Argv are the arguments of the executed program, if the program of system calls takes
	// them from here. Texts are its other strings, in the order of Program.AddText.
	Argv  []string
	Texts []string
	// ShareFiles: the child shares the table of descriptors, so that what it opens stays open
	// in the caller. In this way the caller gets a socket of another network namespace without
	// a second process to pass it on. Such a program ends with an exit, and neither closes nor
	// moves descriptors that it did not open.
	ShareFiles bool
	// Ahead, unless nil, is the process that runs the program, if it has these clone flags;
	// SyncParent is then not called. If it cannot be used, Run ends it.
	Ahead *Ahead
	// Results, unless nil, is filled with the result of each step. It is -1 for a step that
	// has not run, or that stands for several calls. It needs room for all steps.
	Results []int64
	// SyncParent is called when the child waits in a [Block.SyncParent]; it is required for a
	// program that has one. It runs in another goroutine than Run. If it returns an error, the
	// child is killed and Run returns that error.
	SyncParent func(*Child) error
}

// Run runs the program in a new process and returns once the last step, usually an execve, has
// succeeded. If a step fails, the error is a [*StepError]; if the process could not be made,
// it is a [*CloneError]. No process is left then.
//
// If ctx ends before the program does, the process is killed and Run returns the cause. Run
// can be called concurrently.
func Run(ctx context.Context, p *Program, o Options) (*Process, error) {
	im, err := Load(p)
	if err != nil {
		return nil, err
	}
	return im.Run(ctx, o)
}
