package bwrap

import (
	"fmt"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/policy"
)

// A guard is the program that the init runs in the command's process, just
// before the command: it enters a Landlock domain and hands the listener of a
// second filter to the broker in the supervisor. bubblewrap can do neither.
type guard struct {
	domain program.Domain
	snap   *host.Snapshot
	prog   sysprog.Program
}

// The numbers that descriptors have in the guard's program. The init closes
// everything but the command's own, its pipes and those of the program.
type guardNumbers struct {
	program, socket int
}

// guard adds the program, or lists what does not hold without it.
func (c *compiler) guard(s *host.Snapshot) error {
	g := &guard{domain: program.Domain{Plan: c.plan, Snap: s, Guards: c.plan.Guarded()}, snap: s}
	c.launch.Gaps = append(c.launch.Gaps, g.domain.Gaps()...)
	if !g.domain.Available() {
		return nil
	}
	first := c.launch.FirstFD + len(c.launch.Files)
	c.guardFDs = guardNumbers{program: first, socket: first + 1}
	files := []backend.File{{Kind: backend.Data}}
	if c.plan.JudgesNames() {
		files = append(files, backend.File{Kind: backend.Listener})
		c.launch.Guard = &backend.Guard{Roots: g.domain.Guards, Reads: c.plan.HidesByPattern()}
	}
	if err := g.build(c.guardFDs, len(files) > 1); err != nil {
		return fmt.Errorf("backend %s: %w", Name, err)
	}
	o := sysprog.ExportOptions{Arch: s.Arch}
	if len(files) > 1 {
		o.Files = []int{c.guardFDs.socket}
	}
	part, err := sysprog.ExportPart(&g.prog, o)
	if err != nil {
		return fmt.Errorf("backend %s: %w", Name, err)
	}
	files[0].Data = part.Image
	for _, f := range files {
		c.file(f)
	}
	c.guardFiles = len(files) - 1
	return nil
}

func (g *guard) do(format string, args ...any) sysprog.Block {
	return g.prog.For(policy.Origin{}, fmt.Sprintf(format, args...))
}

// build writes the program. The numbers behind the socket are free.
func (g *guard) build(n guardNumbers, listens bool) error {
	var socket sysprog.Arg
	if listens {
		socket = g.prog.AddFile("listener")
	}
	attr := g.domain.Handled(g.domain.Scopes())
	ruleset := program.NewRuleset(g.do("make a Landlock ruleset"), attr, n.socket+1)
	g.allow(ruleset, "/", g.domain.OfRoot())
	for i := range g.domain.Plan.Paths {
		if e := &g.domain.Plan.Paths[i]; e.Path != "/" {
			g.allow(ruleset, e.Path, g.domain.Rights(e))
		}
	}
	b := g.do("enter the Landlock domain")
	if len(g.domain.Guards) == 0 {
		b = b.Ignoring(sysprog.E2BIG) // the kernel nests 16 domains
	}
	ruleset.Enter(b)
	if !listens {
		return nil
	}
	return g.listen(socket, n.socket+2)
}

// allow grants rights over what is at a path inside. bubblewrap has mounted it
// there, so no part of the path is a link that the command could have made.
func (g *guard) allow(ruleset program.Ruleset, path string, rights uint64) {
	if rights == 0 {
		return
	}
	b := g.do("Landlock: %s %s", landlockabi.FileRights(rights), path)
	fd := b.Openat(sysprog.Cwd(), path, sysprog.OpenPath|sysprog.OpenNoFollow, 0)
	ruleset.Allow(b, fd, rights)
	b.Close(fd)
}

func (g *guard) listen(socket sysprog.Arg, number int) error {
	o := seccomp.Options{Arch: g.snap.Arch, Notify: seccomp.NotifyWrites}
	if g.domain.Plan.HidesByPattern() {
		o.Notify |= seccomp.NotifyReads
	}
	filter, err := seccomp.Filter(o)
	if err != nil {
		return err
	}
	g.do("hand over the calls that are judged").SendListener(filter, sysprog.SeccompWaitKillableRecv, socket, number)
	return nil
}
