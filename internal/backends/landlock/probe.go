package landlock

import (
	"context"
	"errors"
	"syscall"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/sysprog"
)

// domainsPerRun is how many Landlock domains a run nests: the program's, the init's and the
// command's. The kernel allows 16.
const domainsPerRun = 3

// Probe confines a process in the same way as real runs do, and ends it.
func Probe(ctx context.Context, s *host.Snapshot) host.Probe {
	no := host.Probe{Outcome: host.No, Cause: cause.TooOld, Reason: s.Landlock.Reason}
	switch {
	case s.OS != "linux":
		no.Cause, no.Reason = cause.UnsupportedOS, "it needs Linux"
		return no
	case s.Landlock.ABI < 1:
		return no
	}
	c := &compiler{plan: program.ProbePlan(), snap: s, launch: &backend.Launch{}}
	if err := c.compile(); err != nil {
		no.Reason = err.Error()
		return no
	}
	return c.trial(ctx)
}

// trial runs the program, and enters as many domains as a run does.
func (c *compiler) trial(ctx context.Context) host.Probe {
	last := len(c.prog.Steps) - 1
	execute := c.prog.Steps[last]
	c.prog.Steps = c.prog.Steps[:last]
	for range domainsPerRun - 1 {
		c.ruleset.Enter(c.do("enter a nested Landlock domain"))
	}
	c.prog.Steps = append(c.prog.Steps, execute)
	ok, err := program.Trial(ctx, &c.prog, sysprog.Options{})
	switch {
	case err != nil:
		return explain(ctx, err)
	case !ok:
		return host.Probe{Reason: "the probe ended in an unexpected way"}
	}
	return host.Probe{Outcome: host.Yes}
}

// explain finds the cause of an error.
func explain(ctx context.Context, err error) host.Probe {
	no := host.Probe{Outcome: host.No, Cause: cause.TooOld, Reason: err.Error()}
	var step *sysprog.StepError
	switch {
	case ctx.Err() != nil:
		return host.Probe{Reason: "the probe took too long"}
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return host.Probe{Reason: err.Error()}
	case errors.Is(err, syscall.E2BIG):
		no.Cause, no.Reason = cause.Container, "too many sandboxes are nested: the kernel has 16 Landlock domains, and each takes 3"
	case errors.Is(err, syscall.ENOSYS):
		no.Fix = "use Linux 5.13 or newer"
	case errors.Is(err, syscall.EPERM):
		no.Cause = cause.Container
	case !errors.As(err, &step):
		return host.Probe{Reason: err.Error()}
	}
	return no
}
