package landlock

import (
	"fmt"
	"path"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/initprog"
	ll "github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// rules are the parts of a plan that can be enforced with one Landlock ABI, and the gaps.
type rules struct {
	ruleset ll.Ruleset
	grants  []grant
	filter  seccomp.Options
	gaps    []backend.Gap
}

// downgrade finds out what this machine's Landlock can enforce of a plan, and what it cannot.
// Rights that the ABI does not know are left out of the grants.
func downgrade(p *plan.Plan, s *host.Snapshot) rules {
	abi := s.Landlock.ABI
	placed := program.WithoutRemap(p)
	t := grantsFor(placed, s.FS)
	r := rules{ruleset: ll.Handled(abi), gaps: gapsOf(placed, s, t), filter: seccomp.Options{
		Arch: s.Arch, DenyIPC: true, DenyOthers: true, DenyInet: p.Network.Mode != policy.NetworkHost, DenyUnix: abi < ll.ABIUnix,
	}}
	if p.Network.Mode == policy.NetworkHost {
		r.ruleset.Net = 0
	}
	for _, g := range t.grants {
		if g.rights &= r.ruleset.FS; g.rights != 0 {
			r.grants = append(r.grants, g)
		}
	}
	return r
}

// A compiler builds one launch.
type compiler struct {
	plan    *plan.Plan
	snap    *host.Snapshot
	launch  *backend.Launch
	prog    sysprog.Program
	fds     program.Descriptors
	ruleset program.Ruleset
	// open are the open folders on the way to the rule that was added last.
	open []folder
}

// A folder is an open folder.
type folder struct {
	path string
	fd   sysprog.Arg
}

func (c *compiler) do(format string, args ...any) sysprog.Block {
	return c.prog.For(policy.Origin{}, fmt.Sprintf(format, args...))
}

func (c *compiler) compile() error {
	r := downgrade(c.plan, c.snap)
	c.plan = program.WithoutRemap(c.plan)
	c.launch.Program, c.launch.Gaps = &c.prog, r.gaps
	c.createDirs()
	c.fds = program.Install(c.do("descriptors"), &c.prog, c.launch, c.plan.Command.ExtraFiles)
	c.do("work in %s", c.plan.Command.Dir).Chdir(c.plan.Command.Dir)
	c.do("no program gains privileges").NoNewPrivs()
	c.enforce(r)
	if err := c.harden(r); err != nil {
		return err
	}
	program.Execute(&c.prog, c.fds, c.initConfig())
	return c.prog.Validate()
}

// createDirs lets the supervisor create cloche's own folders if the command could create them
// otherwise. Persisted folders are not created, because they cannot be shown without mounts.
func (c *compiler) createDirs() {
	for _, e := range c.plan.Paths {
		if e.Create && !e.Persisted() {
			c.launch.CreateDirs = append(c.launch.CreateDirs, e.Source)
		}
	}
}

// initConfig returns the init's configuration. It sets no limit on processes, because the
// kernel would count all processes of the user; the supervisor samples them instead.
func (c *compiler) initConfig() initprog.Config {
	config := program.InitConfig(c.plan, c.fds)
	config.Adopt, config.Scope = true, c.snap.Landlock.ABI >= ll.ABIScope
	config.Processes = initprog.None
	return config
}

// harden drops privileges. An ordinary user has none, and cannot drop them from the bounding
// set either; EPERM for that is ignored.
func (c *compiler) harden(r rules) error {
	if !c.plan.Privileged {
		program.DropCapabilities(&c.prog, c.snap.UID, sysprog.EPERM)
	}
	filter, err := seccomp.Filter(r.filter)
	if err != nil {
		return err
	}
	c.do("filter system calls").Seccomp(filter, 0)
	return nil
}

// enforce makes the ruleset and enters it.
func (c *compiler) enforce(r rules) {
	c.ruleset = program.NewRuleset(c.do("make a Landlock ruleset"), r.ruleset, c.fds.Free)
	for _, g := range r.grants {
		c.allow(g)
	}
	c.openUpTo(c.do("close what the rules were made from"), "")
	c.ruleset.Enter(c.do("enter the Landlock domain"))
}

// allow adds one rule.
func (c *compiler) allow(g grant) {
	b := c.prog.For(g.origin, ll.FileRights(g.rights)+" "+g.path)
	dir := c.openUpTo(b, path.Dir(g.path))
	if !g.optional {
		fd := openIn(b, dir, g.path, g.kind == hostfs.Dir)
		c.ruleset.Allow(b, fd, g.rights)
		b.Close(fd)
		return
	}
	fd := openIn(b.Ignoring(sysprog.ENOENT, sysprog.ENOTDIR, sysprog.EACCES), dir, g.path, g.kind == hostfs.Dir)
	c.ruleset.AllowIfOpen(b, fd, g.rights)
	b.Ignoring(sysprog.EBADF).Call("close", fd)
}

// openUpTo opens a folder, one component after the other and without following symbolic links,
// and closes those that are not on its way. (openat2 would do it in one call, but is denied
// inside another sandbox of cloche.)
func (c *compiler) openUpTo(b sysprog.Block, dir string) sysprog.Arg {
	for len(c.open) > 0 && !pathx.Within(c.open[len(c.open)-1].path, dir) {
		last := len(c.open) - 1
		b.Close(c.open[last].fd)
		c.open = c.open[:last]
	}
	if len(c.open) > 0 && c.open[len(c.open)-1].path == dir || dir == "" {
		return c.lastOpen()
	}
	if dir == "/" {
		c.push(dir, openIn(b, sysprog.Cwd(), "/", true))
		return c.lastOpen()
	}
	parent := c.openUpTo(b, path.Dir(dir))
	c.push(dir, openIn(b, parent, dir, true))
	return c.lastOpen()
}

func (c *compiler) push(p string, fd sysprog.Arg) { c.open = append(c.open, folder{p, fd}) }

// lastOpen returns the innermost open folder.
func (c *compiler) lastOpen() sysprog.Arg {
	if len(c.open) == 0 {
		return sysprog.Cwd()
	}
	return c.open[len(c.open)-1].fd
}

// openIn opens an entry of a folder, or the root.
func openIn(b sysprog.Block, dir sysprog.Arg, p string, folder bool) sysprog.Arg {
	flags := sysprog.OpenPath | sysprog.OpenNoFollow
	if folder {
		flags |= sysprog.OpenDirectory
	}
	if p != "/" {
		p = path.Base(p)
	}
	return b.Openat(dir, p, flags, 0)
}
