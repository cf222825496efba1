package native

import (
	"context"
	"errors"
	"syscall"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/sysprog"
)

// Probe makes a sandbox in the same way as real runs do, and ends it.
func Probe(ctx context.Context, s *host.Snapshot) host.Probe {
	if s.OS != "linux" {
		return host.Probe{Outcome: host.No, Cause: cause.UnsupportedOS, Reason: "it needs Linux"}
	}
	c := newCompiler(program.ProbePlan(), s)
	if err := c.compile(); err != nil {
		return host.Probe{Outcome: host.No, Cause: cause.TooOld, Reason: err.Error()}
	}
	ok, err := c.trial(ctx)
	switch {
	case err != nil:
		return explain(ctx, s, err)
	case !ok:
		return host.Probe{Reason: "the probe ended in an unexpected way"}
	}
	return host.Probe{Outcome: host.Yes}
}

// trial runs the program in its namespaces.
func (c *compiler) trial(ctx context.Context) (ok bool, err error) {
	o := sysprog.Options{CloneFlags: c.namespaces()}
	if c.launch.MapRoot {
		o.SyncParent = func(child *sysprog.Child) error { return sysprog.MapIdentity(child.Pid) }
	}
	return program.Trial(ctx, c.prog, o)
}

// explain finds the cause of an error. It probes the user namespace separately, because most
// machines on which no sandbox can be made deny that.
func explain(ctx context.Context, s *host.Snapshot, err error) host.Probe {
	var step *sysprog.StepError
	var clone *sysprog.CloneError
	switch {
	case ctx.Err() != nil:
		return host.Probe{Reason: "the probe took too long"}
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return host.Probe{Reason: err.Error()}
	case errors.Is(err, syscall.ENOSYS):
		return host.Probe{Outcome: host.No, Cause: cause.TooOld, Reason: err.Error(), Fix: "use Linux 5.12 or newer"}
	case errors.As(err, &step), errors.As(err, &clone):
		if users := machine.ProbeUserNS(ctx, s); users.Outcome == host.No {
			return users
		}
		return machine.MountRefused(s, err.Error())
	}
	return host.Probe{Reason: err.Error()}
}
