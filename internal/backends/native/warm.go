package native

import (
	"errors"
	"fmt"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

var errPrivileged = errors.New("a command that keeps its privileges has no user namespace that could be joined")

// Park implements backend.Warmer. A sandbox whose commands are apart is held by
// the descriptors of its namespaces alone: no process is left in it that could
// be killed, and nothing of it outlives the supervisor. One whose commands are
// together needs a first process for its pid namespace.
func (b *Backend) Park(p *plan.Plan, s *host.Snapshot, how backend.Sharing) (*backend.Launch, error) {
	if p.Privileged {
		return nil, fmt.Errorf("backend %s: %w", Name, errPrivileged)
	}
	c := b.compiler(p, s)
	c.launch.Env = []string{}
	c.launch.Init = false
	for _, ns := range c.held(how) {
		c.launch.Holds = append(c.launch.Holds, ns.name)
	}
	if err := c.park(how); err != nil {
		return nil, fmt.Errorf("backend %s: %w", Name, err)
	}
	c.gaps()
	return c.launch, nil
}

func (c *compiler) park(how backend.Sharing) error {
	c.identity()
	if how == backend.Apart {
		c.do("descriptors").CloseOthers()
		c.noDomain = true // each command has its own
	} else {
		c.fds = program.Install(c.do("descriptors"), c.prog, c.launch, 0, c.rulesetFile()...)
		c.newRuleset(0) // commands may signal each other
	}
	c.files()
	c.network()
	if how == backend.Apart {
		// Each command gets temporary folders of its own; what one could write in
		// /dev, the next would find.
		c.do("seal /dev").MountSetattr(c.root, "dev", 0, sysprog.MountAttr{Set: sysprog.MountAttrReadOnly})
	}
	if how == backend.Together {
		c.handRulesetOver()
	}
	c.do("hand the namespaces over").SyncParent()
	if how == backend.Apart {
		c.do("leave them to their descriptors").Exit(0)
	} else if err := c.waitParked(); err != nil {
		return err
	}
	c.launch.Program, c.launch.Namespaces = c.prog, c.namespaces()
	return c.prog.Validate()
}

// waitParked ends the program in an init that waits for commands to join it.
func (c *compiler) waitParked() error {
	c.do("work in /").Chdir("/")
	c.do("no program gains privileges").NoNewPrivs()
	c.enterDomain(c.ruleset.FD)
	program.DropCapabilities(c.prog, c.snap.UID)
	if err := c.filter(); err != nil {
		return err
	}
	program.Execute(c.prog, c.fds, initprog.Config{
		StatusFD: c.fds.Status, LifelineFD: c.fds.Lifeline, Park: true,
		Processes: initprog.None, OpenFiles: initprog.None, FileSize: initprog.None,
	})
	return nil
}

// rulesetFile is the file of a sandbox whose commands share one ruleset.
func (c *compiler) rulesetFile() []backend.File {
	if !c.layered() {
		return nil
	}
	return []backend.File{{Kind: backend.Ruleset}}
}

// handRulesetOver gives the supervisor the ruleset for all commands: everything
// that its rules are about belongs to the session.
func (c *compiler) handRulesetOver() {
	if !c.layered() {
		return
	}
	c.addRules(c.root)
	c.ruleset.Send(c.do("hand the Landlock ruleset over"), c.fds.More[0])
}

// A namespace is one that commands join.
type namespace struct {
	name string // in /proc/PID/ns
	flag uint64
}

// held are the namespaces of a parked sandbox, in the order in which they are
// joined: the user namespace gives the right to join the others.
func (c *compiler) held(how backend.Sharing) []namespace {
	list := []namespace{{"user", sysprog.NewUser}, {"mnt", sysprog.NewMount}, {"cgroup", sysprog.NewCgroup}}
	if c.plan.Network.Mode != policy.NetworkHost {
		list = append(list, namespace{"net", sysprog.NewNetwork})
	}
	if how == backend.Apart {
		return append(list, namespace{"uts", sysprog.NewUTS})
	}
	// There is a process to join, which takes one call (Linux 5.8).
	all := namespace{backend.AllNamespaces, sysprog.NewIPC | sysprog.NewPID}
	for _, ns := range list {
		all.flag |= ns.flag
	}
	return []namespace{all}
}

// Enter implements backend.Warmer.
func (b *Backend) Enter(p *plan.Plan, s *host.Snapshot, how backend.Sharing, like *backend.Launch) (*backend.Launch, error) {
	if p.Command == nil {
		return nil, fmt.Errorf("backend %s: the plan has no command", Name)
	}
	if like == nil {
		c := b.compiler(p, s)
		if err := c.enter(how); err != nil {
			return nil, fmt.Errorf("backend %s: %w", Name, err)
		}
		c.gaps()
		like = c.launch
	}
	l := *like
	l.Env, l.Dir, l.Path = p.Environ(), p.Command.Dir, p.Command.Path
	if how == backend.Apart {
		l.Argv = program.InitConfig(p, program.Descriptors{Status: l.FirstFD, Lifeline: l.FirstFD + 1}).Argv("cloche-init")
	} else {
		l.Argv = p.Command.Args
	}
	return &l, nil
}

func (c *compiler) enter(how backend.Sharing) error {
	var err error
	if how == backend.Apart {
		err = c.enterApart()
	} else {
		err = c.enterTogether()
	}
	if err != nil {
		return err
	}
	c.launch.Program = c.prog
	return c.prog.Validate()
}

// enterApart joins what the session shares and makes the rest anew.
func (c *compiler) enterApart() error {
	initFiles := 3 + len(c.listenerFile())
	c.join(backend.Apart, 3+c.plan.Command.ExtraFiles+initFiles)
	own := uint64(sysprog.NewPID | sysprog.NewMount | sysprog.NewIPC)
	if c.ordinary() {
		own |= sysprog.NewUser
	}
	c.do("own processes, mounts and IPC").Fork(own)
	c.descriptors()
	c.addNamespaces(backend.Apart)
	c.newRuleset(landlockabi.ScopeSignal) // abstract sockets are the session's
	c.renewAll()
	c.grantShared()
	c.chdir()
	if err := c.harden(open(c.do("open the root"), sysprog.Cwd(), "/")); err != nil {
		return err
	}
	c.do("execute the init").ExecveatArgv(c.fds.Init)
	return nil
}

// ordinary reports whether the kernel counts the user's processes. It does so for
// each user namespace, and the limit is for one command: so each has a user
// namespace of its own in that of the session. It exempts root.
func (c *compiler) ordinary() bool { return c.snap.UID != 0 }

// join adds the steps that join the namespaces. Their descriptors are the files
// of the program from first on; the numbers of the command's descriptors may be
// theirs, so this comes before those are installed.
func (c *compiler) join(how backend.Sharing, first int) {
	for i, ns := range c.held(how) {
		c.do("join the session's namespaces (%s)", ns.name).Setns(sysprog.Arg{Kind: sysprog.KindFile, Value: uint64(first + i)}, ns.flag)
	}
}

// addNamespaces adds the files that join is about.
func (c *compiler) addNamespaces(how backend.Sharing) {
	for _, ns := range c.held(how) {
		c.prog.AddFile(ns.name + " namespace")
		c.launch.Files = append(c.launch.Files, backend.File{Kind: backend.Namespace, Path: ns.name})
	}
}

// chdir goes to the working folder, which each run names.
func (c *compiler) chdir() {
	c.do("go to the working folder").Call("chdir", c.prog.AddText("working folder"))
}

// renewAll gives the command its own /proc and an empty one of each private
// folder, on top of those of the session. All private folders are on one file
// system: one for each would cost more than all the rest.
func (c *compiler) renewAll() {
	c.root = sysprog.Cwd() // joining a mount namespace leads to its root
	var proc plan.Path
	private := []plan.Path{{Path: "/dev/shm"}}
	for _, e := range c.lines() {
		switch {
		case e.Content == plan.Proc:
			proc = e
		case e.Content == plan.Empty && e.Access == policy.Write && e.Kind == host.Dir:
			private = append(private, e)
		}
	}
	c.proc(c.by(proc.Origin, "own %s", proc.Path), proc)
	if c.ordinary() {
		c.identity() // through the new /proc: the session's knows no process
	}
	b := c.do("own private folders")
	// It lies on /dev/shm until that is covered itself: what is cloned has to be
	// attached, before Linux 6.15.
	c.store = b.NewMount("tmpfs", ofHost, c.sized("mode=0755")...)
	c.attach(b, c.store, "/dev/shm")
	mask := b.CallResult("umask", sysprog.Const(0))
	for _, e := range private {
		c.renew(e)
	}
	c.do("the caller's mask for new files").Call("umask", mask)
	b = c.do("own /dev/pts")
	c.cover(b, newPTS(b), "/dev/pts")
}

// grantShared grants the lines that commands of the session share. Those that
// each has of its own were granted when they were made.
func (c *compiler) grantShared() {
	for _, e := range c.plan.Paths {
		if (e.Content == plan.Host || e.Content == plan.Devices) && e.Path != "/" && c.rights(e) != 0 {
			b := c.by(e.Origin, "open %s", e.Path)
			c.keep(b, e, c.inside(b, e.Path))
		}
	}
}

// renew covers a private folder with an empty one of the store and puts what
// other lines show in it on top again.
func (c *compiler) renew(private plan.Path) {
	b := c.by(private.Origin, "own %s", private.Path)
	inside := c.directlyIn(private.Path)
	for _, e := range inside {
		if e.Content == plan.Link {
			continue
		}
		at := c.inside(b, e.Path)
		c.trees[e.Path] = b.OpenTree(at, "", cloneTree)
		b.Close(at)
	}
	tree := c.newFolder(b, 0o1777)
	c.attach(b, tree, private.Path)
	c.keep(b, private, tree)
	for _, e := range inside {
		c.makePoint(b, e)
		if e.Content == plan.Link {
			b.Symlinkat(e.Target, c.root, pathx.Rel("/", e.Path))
		} else {
			c.cover(b, c.trees[e.Path], e.Path)
		}
	}
}

// directlyIn are the lines in a folder that lie in no line between.
func (c *compiler) directlyIn(p string) []plan.Path {
	var out []plan.Path
	for _, e := range c.plan.Paths {
		if e.Path != p && e.Kind != host.Missing && pathx.Within(p, e.Path) && c.around(e.Path).Path == p {
			out = append(out, e)
		}
	}
	return out
}

// enterTogether joins everything. The command itself is executed: the init of
// the session reaps what it leaves behind.
func (c *compiler) enterTogether() error {
	cmd := c.plan.Command
	n := 3 + cmd.ExtraFiles
	c.launch.Init, c.launch.Tagged, c.launch.FirstFD = false, true, n
	own := make([]sysprog.Arg, n)
	for i := range own {
		own[i] = c.prog.AddFile(fmt.Sprintf("descriptor %d", i))
	}
	c.do("descriptors").CloseOthers()
	c.join(backend.Together, n)
	c.addNamespaces(backend.Together)
	var shared []sysprog.Arg
	for _, f := range c.rulesetFile() {
		shared = append(shared, c.prog.AddFile("Landlock ruleset"))
		c.launch.Files = append(c.launch.Files, f)
	}
	for _, f := range c.listenerFile() {
		shared = append(shared, c.prog.AddFile("listener"))
		c.launch.Files = append(c.launch.Files, f)
	}
	c.tag()
	b := c.do("descriptors")
	shared = b.Install(own, shared...)
	b.CloexecFrom(uint32(n))
	c.terminal()
	c.chdir()
	c.resourceLimits()
	if err := c.hardenVisible(shared); err != nil {
		return err
	}
	b = c.do("execute the command")
	b.Sigmask(0) // the fork has left no handlers of the caller
	b.ExecveArgv(c.prog.AddText("program"))
	return nil
}

// hardenVisible is harden for a process that other commands can see. Until execve
// it shares its memory with the supervisor: if it gave up its capabilities
// before, a command of the same user could open /proc/PID/mem. With capabilities
// that the others lack it cannot be traced. They go at execve, after the memory.
func (c *compiler) hardenVisible(shared []sysprog.Arg) error {
	c.do("no program gains privileges").NoNewPrivs()
	if c.layered() {
		c.enterDomain(shared[0])
	}
	program.LimitCapabilities(c.prog, c.snap.UID)
	if !c.brokered() {
		return c.filter()
	}
	// The number is free: what was there is either this socket or the ruleset,
	// which has been used.
	socket := 3 + c.plan.Command.ExtraFiles
	c.do("descriptors").Ignoring(sysprog.EINVAL).Dup3(shared[1], socket)
	c.fds.Free = socket
	c.listenOn(sysprog.FD(socket))
	if err := c.filter(); err != nil {
		return err
	}
	c.do("descriptors").Close(sysprog.FD(socket))
	return nil
}

// tag makes a process in the session's pid namespace with a UTS namespace of its
// own. All that the command starts inherits that one, and with the rights it
// has, nothing can leave it: it is how the supervisor knows the tree.
func (c *compiler) tag() {
	b := c.do("mark the command's processes")
	b.Fork(sysprog.NewUTS)
	b.ReportInode("/proc/self/ns/uts")
}

func (c *compiler) terminal() {
	const setControlling = 0x540e
	b := c.do("own session")
	b.Setsid()
	if c.plan.Command.Terminal {
		b.Call("ioctl", sysprog.FD(0), sysprog.Named(setControlling, "TIOCSCTTY"), sysprog.Const(0))
	}
}

// resourceLimits sets the limits that the init would set. The kernel counts
// processes for the whole session, so the supervisor keeps that limit. One that
// would have to be raised, which is refused, is stricter already.
func (c *compiler) resourceLimits() {
	const fileSize, core, openFiles = 1, 4, 7
	b := c.do("limits").Ignoring(sysprog.EPERM)
	b.Prlimit(core, "RLIMIT_CORE", 0, 0)
	for _, l := range []struct {
		resource   uint64
		name, rule string
	}{{openFiles, "RLIMIT_NOFILE", plan.LimitOpenFiles}, {fileSize, "RLIMIT_FSIZE", plan.LimitFileSize}} {
		if v := c.plan.Limit(l.rule); v >= 0 {
			b.Prlimit(l.resource, l.name, uint64(v), uint64(v))
		}
	}
}
