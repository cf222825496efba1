package bwrap

import (
	"fmt"
	"slices"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/policy"
)

// A guard is the program that the init runs in the command's process, just before the command.
// It enters a Landlock domain and sends the listener of a second filter to the broker in the
// supervisor. bubblewrap can do neither.
//
// If the supervisor makes the network, the program first sends its network namespace and
// finally waits until the network is ready.
type guard struct {
	domain program.Domain
	snap   *host.Snapshot
	prog   sysprog.Program
	files  []backend.File // of the program
	// first is the number of the program's file; the numbers of its own files follow. The init
	// closes everything except the command's own descriptors, its pipes and these.
	first int
}

// guard adds the program, or lists the gaps that exist without it.
func (c *compiler) guard(s *host.Snapshot) error {
	g := &guard{domain: program.Domain{Plan: c.plan, Snap: s, Guards: c.plan.Guarded(), Brokered: c.plan.JudgesNames()}, snap: s, first: c.launch.FirstFD + len(c.launch.Files)}
	c.launch.Gaps = slices.Concat(c.launch.Gaps, g.domain.Gaps(), g.domain.SocketGaps(), g.domain.AbstractGaps())
	c.launch.Network = c.plan.Network.NeedsHelp()
	if !g.domain.Available() && !c.launch.Network {
		return nil
	}
	if c.brokered() {
		c.launch.Guard = program.NewGuard(c.plan, s, g.domain.Guards)
	}
	part, err := g.export(c.launch)
	if err != nil {
		return fmt.Errorf("backend %s: %w", Name, err)
	}
	c.guardFD = c.file(backend.File{Kind: backend.Data, Data: part})
	for _, f := range g.files {
		c.file(f)
	}
	c.guardFiles = len(g.files)
	return nil
}

func (g *guard) do(format string, args ...any) sysprog.Block {
	return g.prog.For(policy.Origin{}, fmt.Sprintf(format, args...))
}

// file adds a file of the program.
func (g *guard) file(kind backend.FileKind, name string) sysprog.Arg {
	g.files = append(g.files, backend.File{Kind: kind})
	return g.prog.AddFile(name)
}

// free returns the first number after those of the program's files.
func (g *guard) free() int { return g.first + 1 + len(g.files) }

// export builds the program for a launch.
func (g *guard) export(l *backend.Launch) ([]byte, error) {
	var listener, network sysprog.Arg
	if l.Guard != nil {
		listener = g.file(builtin.Listener, "listener")
	}
	if l.Network {
		network = g.file(builtin.NetworkHandover, "network handover")
		program.HandNetworkOver(g.do("hand the network namespace over"), network, g.free())
	}
	if g.domain.Available() {
		g.confine()
	}
	if l.Guard != nil {
		if err := g.listen(l.Guard, listener, g.free()+1); err != nil {
			return nil, err
		}
	}
	if l.Network {
		program.AwaitNetwork(g.do(program.AwaitLabel), network)
	}
	o := sysprog.ExportOptions{Arch: g.snap.Arch}
	for i := range g.files {
		o.Files = append(o.Files, g.first+1+i)
	}
	return sysprog.ExportPart(&g.prog, o)
}

// confine enters the Landlock domain.
func (g *guard) confine() {
	attr := g.domain.Handled(g.domain.Scopes())
	ruleset := program.NewRuleset(g.do("make a Landlock ruleset"), attr, g.free())
	g.allow(ruleset, "/", g.domain.OfRoot())
	for i := range g.domain.Plan.Paths {
		if e := &g.domain.Plan.Paths[i]; e.Path != "/" {
			g.allow(ruleset, e.Path, g.domain.Rights(e))
		}
	}
	b := g.do("enter the Landlock domain")
	if !g.domain.Needed() {
		b = b.Ignoring(sysprog.E2BIG) // the kernel nests 16 domains
	}
	ruleset.Enter(b)
}

// allow allows rights for a path inside. bubblewrap has mounted it there, so no part of the
// path is a link that a command could have made.
func (g *guard) allow(ruleset program.Ruleset, path string, rights uint64) {
	if rights == 0 {
		return
	}
	b := g.do("Landlock: %s %s", landlockabi.FileRights(rights), path)
	fd := b.Openat(sysprog.Cwd(), path, sysprog.OpenPath|sysprog.OpenNoFollow, 0)
	ruleset.Allow(b, fd, rights)
	b.Close(fd)
}

func (g *guard) listen(held *builtin.Guard, socket sysprog.Arg, number int) error {
	filter, err := seccomp.Filter(seccomp.Options{Arch: g.snap.Arch, Notify: program.Notified(held)})
	if err != nil {
		return err
	}
	g.do("hand over the calls that are judged").SendListener(filter, sysprog.SeccompWaitKillableRecv, socket, number)
	return nil
}
