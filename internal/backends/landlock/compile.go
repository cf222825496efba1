package landlock

import (
	"encoding/binary"
	"fmt"
	"path"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// rules are what is left of a plan under one Landlock ABI.
type rules struct {
	ruleset ruleset
	grants  []grant
	filter  seccomp.Options
	gaps    []backend.Gap
}

// downgrade finds what this machine's Landlock can hold of a plan, and what it
// cannot. Rights that the ABI does not know are left out of the grants.
func downgrade(p *plan.Plan, s *host.Snapshot) rules {
	abi := s.Landlock.ABI
	placed := withoutRemap(p)
	t := grantsFor(placed, s.FS)
	r := rules{ruleset: handled(abi), gaps: gapsOf(placed, s, t), filter: seccomp.Options{
		Arch: s.Arch, DenyIPC: true, DenyInet: p.Network.Mode != policy.NetworkHost, DenyUnix: abi < abiUnix,
	}}
	if p.Network.Mode == policy.NetworkHost {
		r.ruleset.net = 0
	}
	for _, g := range t.grants {
		if g.rights &= r.ruleset.fs; g.rights != 0 {
			r.grants = append(r.grants, g)
		}
	}
	return r
}

// A compiler builds one launch.
type compiler struct {
	plan   *plan.Plan
	snap   *host.Snapshot
	launch *backend.Launch
	prog   sysprog.Program
	fds    program.Descriptors
	// ruleset is the descriptor of the ruleset.
	ruleset sysprog.Arg
	// open are the folders on the way to the rule that was added last.
	open []folder
}

// A folder is an open one.
type folder struct {
	path string
	fd   sysprog.Arg
}

func (c *compiler) do(format string, args ...any) sysprog.Block {
	return c.prog.For(policy.Origin{}, fmt.Sprintf(format, args...))
}

func (c *compiler) compile() error {
	r := downgrade(c.plan, c.snap)
	c.plan = withoutRemap(c.plan)
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

// createDirs has cloche's own folders made first where the command could make
// them otherwise. A folder that is persisted is of no use here.
func (c *compiler) createDirs() {
	for _, e := range c.plan.Paths {
		if e.Create && e.Content == plan.Empty {
			c.launch.CreateDirs = append(c.launch.CreateDirs, e.Source)
		}
	}
}

// initConfig is what the init is told. The kernel would count all processes of
// the user for the limit on processes; the supervisor counts them instead.
func (c *compiler) initConfig() initprog.Config {
	config := program.InitConfig(c.plan, c.fds)
	config.Adopt, config.Scope = true, c.snap.Landlock.ABI >= abiScope
	config.Processes = initprog.None
	return config
}

// harden gives up privileges. An ordinary user has none, and may not even take
// them out of the bounding set, which is of no use without.
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
//
// It is made in the child and not by the supervisor: so it is a part of the
// program, which can be looked at and compared, each path is looked up once,
// and no descriptor of the host's files has to be handed over.
func (c *compiler) enforce(r rules) {
	b := c.do("make a Landlock ruleset")
	attr := r.ruleset.bytes()
	c.ruleset = b.CallResult("landlock_create_ruleset", sysprog.Bytes(attr, r.ruleset.String()), sysprog.Const(uint64(len(attr))), sysprog.Const(0))
	c.place(b, c.ruleset) // or the number could be that of a folder
	for _, g := range r.grants {
		c.allow(g)
	}
	c.openUpTo(c.do("close what the rules were made from"), "")
	c.do("enter the Landlock domain").LandlockRestrictSelf(c.ruleset)
}

// bytes is the struct landlock_ruleset_attr, whose tail kernels that do not
// know it accept if it is zero.
func (r ruleset) bytes() []byte {
	b := binary.LittleEndian.AppendUint64(nil, r.fs)
	b = binary.LittleEndian.AppendUint64(b, r.net)
	return binary.LittleEndian.AppendUint64(b, r.scoped)
}

// String spells the ruleset out.
func (r ruleset) String() string {
	return fmt.Sprintf("{fs=%s, net=%s, scoped=%s}", names(r.fs, fsNames), names(r.net, netNames), names(r.scoped, scopeNames))
}

// allow adds one rule. The struct of the call holds the number of a descriptor,
// so what was opened is copied to the one number that is known before.
func (c *compiler) allow(g grant) {
	b := c.prog.For(g.origin, names(g.rights, fsNames)+" "+g.path)
	dir := c.openUpTo(b, path.Dir(g.path))
	open, use, add := b, b, b
	if g.optional {
		// If it cannot be opened, the number must not mean the file before it.
		// The kernel answers EBADFD to a rule for a ruleset.
		c.place(b, c.ruleset)
		open, use = b.Ignoring(sysprog.ENOENT, sysprog.ENOTDIR, sysprog.EACCES), b.Ignoring(sysprog.EBADF)
		add = b.Ignoring(sysprog.EBADFD, sysprog.EINVAL)
	}
	fd := openIn(open, dir, g.path, g.kind == host.Dir)
	c.place(use, fd)
	c.addRule(add, g.rights)
	use.Call("close", fd)
}

// place makes the known number a copy of a descriptor.
func (c *compiler) place(b sysprog.Block, fd sysprog.Arg) {
	const closeOnExec = 0x80000
	b.Call("dup3", fd, sysprog.FD(c.fds.Free), sysprog.Named(closeOnExec, "O_CLOEXEC"))
}

// addRule adds a struct landlock_path_beneath_attr, which is packed.
func (c *compiler) addRule(b sysprog.Block, rights uint64) {
	attr := binary.LittleEndian.AppendUint64(nil, rights)
	attr = binary.LittleEndian.AppendUint32(attr, uint32(c.fds.Free))
	note := fmt.Sprintf("{allowed_access=%s, parent_fd=%d}", names(rights, fsNames), c.fds.Free)
	b.Call("landlock_add_rule", c.ruleset, sysprog.Named(1, "LANDLOCK_RULE_PATH_BENEATH"), sysprog.Bytes(attr, note), sysprog.Const(0))
}

// openUpTo opens a folder, one component after the other and following no
// symbolic link, and closes those that are not on its way. (openat2 would do it
// in one call; inside of another sandbox of cloche's it is denied.)
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

// lastOpen is the innermost open folder.
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
