package native

import (
	"fmt"

	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
)

// enterTogether joins everything. The program executes the command itself: the init of the
// session reaps what it leaves behind.
func (c *compiler) enterTogether() error {
	if c.launch.Awaits = c.awaits(); c.launch.Awaits {
		return c.awaitTogether()
	}
	cmd := c.plan.Command
	n := 3 + cmd.ExtraFiles
	c.launch.Init, c.launch.Tagged, c.launch.FirstFD = false, true, n
	own := make([]sysprog.Arg, n)
	for i := range own {
		own[i] = c.prog.AddFile(fmt.Sprintf("descriptor %d", i))
	}
	c.do("descriptors").CloseOthers()
	c.join(builtin.Together, n)
	c.addNamespaces(builtin.Together)
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
	b.Sigmask(0) // no handlers of the caller are left after the fork
	b.ExecveArgv(c.prog.AddText("program"))
	return nil
}

// awaitTogether is enterTogether for a command that comes later: the program executes an init
// that waits for the command and then executes it.
func (c *compiler) awaitTogether() error {
	ruleset := c.rulesetFile()
	c.launch.Init, c.launch.Tagged = false, true
	c.do("descriptors").CloseOthers()
	c.join(builtin.Together, 3+initFiles+len(ruleset))
	c.tag()
	c.fds = program.Install(c.do("descriptors"), c.prog, c.launch, 0, ruleset...)
	c.addNamespaces(builtin.Together)
	c.resourceLimits()
	c.do("no program gains privileges").NoNewPrivs()
	if c.layered() {
		c.enterDomain(c.fds.More[0])
	}
	program.LimitCapabilities(c.prog, c.snap.UID) // see hardenVisible
	if c.brokered() {
		c.listenOn(sysprog.FD(c.fds.Status))
	}
	if err := c.filter(); err != nil {
		return err
	}
	c.do("execute the init").ExecveatArgv(c.fds.Init)
	return nil
}

// initFiles is the number of the init's descriptors: see program.Install.
const initFiles = 3

// hardenVisible is harden for a process that other commands can see. Until execve it shares
// its memory with the supervisor. If it dropped its capabilities before, a command of the same
// user could open its /proc/PID/mem. While it has capabilities that the others lack, it cannot
// be traced. It loses them at execve, after the memory.
func (c *compiler) hardenVisible(shared []sysprog.Arg) error {
	c.do("no program gains privileges").NoNewPrivs()
	if c.layered() {
		c.enterDomain(shared[0])
	}
	program.LimitCapabilities(c.prog, c.snap.UID)
	if !c.brokered() {
		return c.filter()
	}
	// The number is free: it was either this socket or the ruleset, which has been used.
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

// tag forks a process into the session's pid namespace with its own UTS namespace. Every
// process that the command starts inherits that namespace, and none has the rights to leave
// it: the supervisor recognizes the command's processes by it.
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

// resourceLimits sets the limits that the init would set. The kernel counts processes for the
// whole session, so the supervisor enforces that limit. EPERM is ignored: it means that a
// lower hard limit is in place already.
func (c *compiler) resourceLimits() {
	const fileSize, core, openFiles = 1, 4, 7
	b := c.do("limits").Ignoring(sysprog.EPERM)
	b.Prlimit(core, "RLIMIT_CORE", 1, 1) // see the init: 0 does not prevent a core dump to a pipe
	for _, l := range []struct {
		resource   uint64
		name, rule string
	}{{openFiles, "RLIMIT_NOFILE", plan.LimitOpenFiles}, {fileSize, "RLIMIT_FSIZE", plan.LimitFileSize}} {
		if v := c.plan.Limit(l.rule); v >= 0 {
			b.Prlimit(l.resource, l.name, uint64(v), uint64(v))
		}
	}
}
