package native

import (
	"errors"
	"fmt"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

var errPrivileged = errors.New("a command that keeps its privileges has no user namespace that could be joined")

// Park implements engine.warmer. If commands are apart, only the descriptors of the namespaces
// keep the sandbox alive: no process is left in it that could be killed, and nothing of it
// outlives the supervisor. If commands are together, the pid namespace needs a first process.
func (b *Backend) Park(p *plan.Plan, s *host.Snapshot, how builtin.Sharing) (*backend.Launch, error) {
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
	c.guardGaps()
	return c.launch, nil
}

func (c *compiler) park(how builtin.Sharing) error {
	c.identity()
	if how == builtin.Apart {
		c.do("descriptors").CloseOthers()
		c.noDomain = true // each command has its own
		c.bareProc = true // each command has its own, and the kernel denies mounting a second /proc if one is partly hidden
	} else {
		c.fds = program.Install(c.do("descriptors"), c.prog, c.launch, 0, c.rulesetFile()...)
		c.newRuleset(c.domain().SessionScopes()) // commands may signal each other
	}
	if err := c.files(); err != nil {
		return err
	}
	c.network()
	c.launch.Network = c.plan.Network.NeedsHelp()
	if how == builtin.Apart {
		// Each command gets its own temporary folders. A file that one command writes to /dev
		// would be visible to the next.
		c.do("seal /dev").MountSetattr(c.root, "dev", 0, sysprog.MountAttr{Set: sysprog.MountAttrReadOnly})
	}
	if how == builtin.Together {
		c.handRulesetOver()
	}
	c.do("hand the namespaces over").SyncParent()
	if how == builtin.Apart {
		c.do("leave them to their descriptors").Exit(0)
	} else if err := c.waitParked(); err != nil {
		return err
	}
	c.launch.Program, c.launch.Namespaces = c.prog, c.namespaces()
	return c.prog.Validate()
}

// waitParked lets the program execute an init that waits for commands to join its namespaces.
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

// rulesetFile returns the file for the ruleset that all commands share.
func (c *compiler) rulesetFile() []backend.File {
	if !c.layered() {
		return nil
	}
	return []backend.File{{Kind: builtin.Ruleset}}
}

// handRulesetOver sends the ruleset to the supervisor, for all commands: everything that its
// rules are about belongs to the session.
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

// held returns the namespaces of a parked sandbox, in the order in which they are joined:
// joining the user namespace gives the right to join the others.
func (c *compiler) held(how builtin.Sharing) []namespace {
	list := []namespace{{"user", sysprog.NewUser}, {"mnt", sysprog.NewMount}, {"cgroup", sysprog.NewCgroup}}
	if c.plan.Network.Mode != policy.NetworkHost {
		list = append(list, namespace{"net", sysprog.NewNetwork})
	}
	if how == builtin.Apart {
		return append(list, namespace{"uts", sysprog.NewUTS})
	}
	// There is a process whose namespaces can all be joined with one call (Linux 5.8).
	all := namespace{builtin.AllNamespaces, sysprog.NewIPC | sysprog.NewPID}
	for _, ns := range list {
		all.flag |= ns.flag
	}
	return []namespace{all}
}

// Enter implements engine.warmer.
func (b *Backend) Enter(p *plan.Plan, s *host.Snapshot, how builtin.Sharing, like *backend.Launch) (*backend.Launch, error) {
	if p.Command == nil {
		return nil, fmt.Errorf("backend %s: the plan has no command", Name)
	}
	again := like != nil
	if !again {
		c := b.compiler(p, s)
		if err := c.enter(how); err != nil {
			return nil, fmt.Errorf("backend %s: %w", Name, err)
		}
		c.guardGaps()
		like = c.launch
	}
	l := *like
	l.Env, l.Dir, l.Path = p.Environ(), p.Command.Dir, p.Command.Path
	if how == builtin.Together && !l.Awaits {
		l.Argv = p.Command.Args
		return &l, nil
	}
	if again && l.Awaits { // the init is the same: the command is not in its arguments
		l.Args = p.Command.Args
		return &l, nil
	}
	config := program.InitConfig(p, program.Descriptors{Status: l.FirstFD, Lifeline: l.FirstFD + 1})
	if how == builtin.Together { // the program has set the limits
		config.Become, config.Processes, config.OpenFiles, config.FileSize = true, initprog.None, initprog.None, initprog.None
	}
	if l.Awaits {
		config.Await, l.Args = true, p.Command.Args
	}
	l.Argv = config.Argv("cloche-init")
	return &l, nil
}

// awaits reports whether the init can wait for its command, so that everything else is made
// before. This is not possible with a terminal, which is made for one command, or with extra
// files, whose number depends on the command.
func (c *compiler) awaits() bool { return !c.plan.Command.Terminal && c.plan.Command.ExtraFiles == 0 }

func (c *compiler) enter(how builtin.Sharing) error {
	var err error
	if how == builtin.Apart {
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

// enterApart joins what the session shares and makes the rest.
func (c *compiler) enterApart() error {
	c.launch.Awaits = c.awaits()
	c.join(builtin.Apart, 3+c.plan.Command.ExtraFiles+initFiles+len(c.listenerFile()))
	own := uint64(sysprog.NewPID | sysprog.NewMount | sysprog.NewIPC)
	if c.ordinary() {
		own |= sysprog.NewUser
	}
	c.do("own processes, mounts and IPC").Fork(own)
	c.descriptors()
	c.addNamespaces(builtin.Apart)
	c.newRuleset(landlockabi.ScopeSignal | c.domain().SessionScopes())
	c.renewAll()
	c.grantShared()
	if !c.launch.Awaits {
		c.chdir()
	}
	if err := c.harden(open(c.do("open the root"), sysprog.Cwd(), "/")); err != nil {
		return err
	}
	c.do("execute the init").ExecveatArgv(c.fds.Init)
	return nil
}

// ordinary reports whether the kernel counts the user's processes; it does not count root's.
// It counts them per user namespace, and the limit is for one command. So each command has its
// own user namespace in that of the session.
func (c *compiler) ordinary() bool { return c.snap.UID != 0 }

// join adds the steps that join the namespaces. Their descriptors are the files of the program
// from first on. The command's descriptors may get the same numbers, so this comes before
// those are installed.
func (c *compiler) join(how builtin.Sharing, first int) {
	for i, ns := range c.held(how) {
		c.do("join the session's namespaces ("+ns.name+")").Setns(sysprog.Arg{Kind: sysprog.KindFile, Value: uint64(first + i)}, ns.flag)
	}
}

// addNamespaces adds the files for join.
func (c *compiler) addNamespaces(how builtin.Sharing) {
	for _, ns := range c.held(how) {
		c.prog.AddFile(ns.name + " namespace")
		c.launch.Files = append(c.launch.Files, backend.File{Kind: builtin.Namespace, Path: ns.name})
	}
}

// chdir changes to the working folder, which each run names.
func (c *compiler) chdir() {
	c.do("go to the working folder").Call("chdir", c.prog.AddText("working folder"))
}

// renewAll gives the command its own /proc and an empty version of each private folder,
// mounted over those of the session. All private folders are on one file system: one for each
// would cost more than all the rest.
func (c *compiler) renewAll() {
	c.root = sysprog.Cwd() // joining a mount namespace changes to its root
	proc := &plan.Path{}
	private := []*plan.Path{{Path: "/dev/shm"}}
	for _, e := range c.lines() {
		switch {
		case e.Content == plan.Proc:
			proc = e
		case e.Content == plan.Empty && e.Access == policy.Write && e.Kind == hostfs.Dir:
			private = append(private, e)
		}
	}
	c.proc(c.by(proc.Origin, "own "+proc.Path), proc)
	if c.ordinary() {
		c.identity() // through the new /proc: the session's shows no process
	}
	b := c.do("own private folders")
	// The store is mounted on /dev/shm until that is mounted over itself: before Linux 6.15,
	// only a mounted file system can be cloned.
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

// grantShared grants the lines that commands of the session share. A command's own lines were
// granted when they were made.
func (c *compiler) grantShared() {
	for i := range c.plan.Paths {
		e := &c.plan.Paths[i]
		if (e.Content == plan.Host || e.Content == plan.Devices) && e.Path != "/" && c.rights(e) != 0 {
			b := c.by(e.Origin, "open "+e.Path)
			c.keep(b, e, c.inside(b, e.Path))
		}
	}
}

// renew mounts an empty folder of the store over a private folder and mounts what other lines
// show in it again.
func (c *compiler) renew(private *plan.Path) {
	b := c.by(private.Origin, "own "+private.Path)
	inside := c.directlyIn(private.Path)
	for _, e := range inside {
		if e.Content == plan.Link {
			continue
		}
		at := c.inside(b, e.Path)
		c.trees[e.Path] = b.OpenTree(at, "", cloneTree)
		b.Close(at)
	}
	tree := c.newFolder(b, private.FolderMode())
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

// directlyIn returns the lines in a folder that have no other line between.
func (c *compiler) directlyIn(p string) []*plan.Path {
	var out []*plan.Path
	for i := range c.plan.Paths {
		if e := &c.plan.Paths[i]; e.Path != p && e.Kind != hostfs.Missing && pathx.Within(p, e.Path) && c.around(e.Path).Path == p {
			out = append(out, e)
		}
	}
	return out
}
