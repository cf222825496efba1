package supervise

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/sysprog"
)

// enter starts a command in a parked sandbox. The sandbox keeps open what all commands use, so
// that little has to be made for one.
func enter(ctx context.Context, spec *Spec, std [3]*os.File) (*child, error) {
	l := spec.Launch
	if l.Awaits {
		return enterAwaiting(ctx, spec, std)
	}
	image, err := spec.Parked.image(l.Program)
	if err != nil {
		return nil, &SetupError{Backend: l.Backend, Step: "load the program", Err: err}
	}
	d := &descriptors{rawStatus: -1}
	defer d.closeChilds()
	o := sysprog.Options{Env: l.Env, Argv: l.Argv, Texts: []string{l.Dir, l.Path}[:len(l.Program.Texts)]}
	for _, f := range append(std[:], spec.ExtraFiles...) {
		o.Files = append(o.Files, int(f.Fd()))
	}
	for i := range l.Files {
		fd, err := spec.Parked.descriptor(&l.Files[i], d)
		if err != nil {
			d.closeOurs()
			return nil, asSetupError(l, "open the descriptors", err)
		}
		o.Files = append(o.Files, fd)
	}
	ctx, cancel := spec.bounded(ctx)
	defer cancel()
	return runImage(ctx, spec, image, o, d)
}

// bounded returns ctx with the run's time limit if the launch is tagged, because another
// command could then stop the program before it has started its command.
func (s *Spec) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if !s.Launch.Tagged || s.Timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.Timeout)
}

// descriptor returns the number of the descriptor for a launch's file.
func (p *parked) descriptor(f *backend.File, d *descriptors) (int, error) {
	switch f.Kind {
	case builtin.Namespace:
		if ns := p.namespaces[f.Path]; ns != nil {
			return int(ns.Fd()), nil
		}
	case builtin.Lifeline:
		return int(p.lifeline.Fd()), nil
	case builtin.Program:
		return int(p.program.Fd()), nil
	case builtin.Ruleset:
		if p.ruleset != nil {
			return int(p.ruleset.Fd()), nil
		}
	case builtin.Listener:
		ours, theirs, err := socketPair(unix.SOCK_SEQPACKET)
		if err != nil {
			return -1, err
		}
		d.listener, d.spare = ours, append(d.spare, theirs)
		return int(theirs.Fd()), nil
	case builtin.InitStatus:
		ours, theirs, err := rawPipeFromChild()
		if err != nil {
			return -1, err
		}
		d.rawStatus, d.spare = ours, append(d.spare, theirs)
		return int(theirs.Fd()), nil
	}
	return -1, errors.New("a descriptor that no parked sandbox has")
}

// runError classifies an error: the command cannot be executed, the parked sandbox no longer
// exists, or the sandbox cannot be made or entered. A process that enters a pid namespace
// whose first process is about to end is killed with the rest.
func runError(spec *Spec, texts []string, err error) error {
	var step *sysprog.StepError
	if spec.Parked == nil || !errors.As(err, &step) {
		return stepError(spec.Launch, texts, err)
	}
	joins := step.Step.Call == "setns" || step.Step.Call == "clone3"
	switch {
	case (joins || step.Signal != 0) && spec.Parked.initEnded():
		return &ChangedError{Path: "the parked sandbox", Err: errors.New("its first process has ended")}
	case step.Step.Call == "execve" && step.Errno != 0:
		return &ExecError{Path: spec.Command, Errno: step.Errno}
	}
	return stepError(spec.Launch, texts, err)
}
