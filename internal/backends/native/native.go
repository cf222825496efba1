// Package native enforces plans with the kernel alone: namespaces, the new mount calls,
// Landlock as a second layer if the kernel has it, no capabilities and a seccomp filter, from
// a Go process and without another program. Compiling is pure: a plan becomes a
// [sysprog.Program], the list of system calls that turns a new process into the sandbox and
// finally executes cloche's init.
//
// The order is: close other descriptors, map ids, clone what will be shown while its path is
// still visible, mount the file system from the root down, enter a Landlock domain, drop
// privileges, filter system calls, execute. Every look-up of a name follows no symbolic link
// and is made once; the descriptor that it gave is what gets mounted.
//
// # Steps
//
//  1. Map the ids. An ordinary user maps itself; for root the parent maps every id
//     to itself while the child waits.
//  2. Install the descriptors at their numbers and close all others.
//  3. Clone what will be shown: each source is opened once, following no link, and
//     mounted from that descriptor. A descriptor from before the namespaces would
//     not do, because the kernel clones mounts only within one mount namespace.
//  4. With reads: host the root stays and becomes read-only with one recursive
//     call; otherwise the process pivots into an empty root. Then come the lines
//     of the plan, shallowest first. Everything that is not the host's is in one
//     file system in memory, the store: /dev, private folders, masks, files with
//     their own text. Hidden folders all show one closed, empty folder; hidden
//     files show a device on a mount without devices, which nobody can open. A
//     link that a rule goes through is mounted on itself, so that it can be
//     followed and not replaced.
//  5. No new privileges, the Landlock domain, no capabilities, the filter, and
//     then the init.
//
// # Made ahead
//
// Making the namespaces takes the kernel as long as making the plan takes cloche. Only the
// policy decides which namespaces there will be, so Begin creates the process on another
// thread while the plan is made. The process ends with its caller, when it is not needed, or
// after two seconds. A launch that needs other namespaces, or whose thread has its own umask,
// priority, user, network or confinement, creates its own process. The process sees the mounts
// from the time when it was created; if a path of the plan is missing there, that is an error.
//
// # The Landlock domain
//
// The domain is a second layer, from ABI 2 on (ABI 1 denies moving files between folders). It
// allows writing to each writable line, by a rule for the mount that the line shows: a mount
// that was left writable by mistake can still not be written. It denies nothing inside a
// writable line and hides nothing; the mounts do that. It also denies signals to the outside,
// abstract sockets unless one is granted, and from Linux 7.1 on sockets with a path that were
// made outside and are not granted.
//
// The kernel checks each handled right at every open, in all folders above the file, which
// takes about a microsecond. So the domain does not handle rights that it would allow
// everywhere (reading, with reads: host), nor truncation if there is a broker: only the broker
// truncates a file by its name, and a descriptor for writing was checked when it was opened.
// An open for neither reading nor writing (access mode 3), for which Landlock checks no right,
// is denied together with O_TRUNC.
package native

import (
	"fmt"
	"slices"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Name is the backend's name in policies.
const Name = "native"

// Backend is the native backend.
type Backend struct {
	probe program.Prober
	// Guard, unless nil, returns the paths of a plan's writable lines in which the broker
	// creates, opens for writing, moves, removes and binds files for the command. Landlock
	// then only lets the command itself read, execute and use devices there. A path for which
	// this is not possible is a gap. Guard is pure.
	Guard func(*plan.Plan) []string
	// unbrokered: there is no broker for guarded paths. It is for tests.
	unbrokered bool
}

// New returns the backend.
func New(probe program.Prober) *Backend {
	return &Backend{probe: probe, Guard: (*plan.Plan).Guarded}
}

// Name implements backend.Backend.
func (*Backend) Name() string { return Name }

// Mounts implements backend.Backend.
func (*Backend) Mounts() bool { return true }

// Available implements backend.Backend.
func (b *Backend) Available(s *host.Snapshot) error { return program.Available(Name, b.probe(s)) }

// Compile implements backend.Backend.
func (b *Backend) Compile(p *plan.Plan, s *host.Snapshot) (*backend.Launch, error) {
	if p.Command == nil {
		return nil, fmt.Errorf("backend %s: the plan has no command", Name)
	}
	c := b.compiler(p, s)
	if err := c.compile(); err != nil {
		return nil, fmt.Errorf("backend %s: %w", Name, err)
	}
	c.guardGaps()
	return c.launch, nil
}

// A compiler builds one launch.
type compiler struct {
	plan   *plan.Plan
	snap   *host.Snapshot
	launch *backend.Launch
	prog   *sysprog.Program

	fds program.Descriptors
	// root is a descriptor of the root folder of the new file system.
	root sysprog.Arg
	// trees are the clones of what lines show, by the line's path.
	trees map[string]sysprog.Arg
	// copies are descriptors of the copies that a review shows in place of files, by the files' host paths.
	copies map[string]sysprog.Arg
	// nodes are clones of the host's device nodes.
	nodes map[string]sysprog.Arg
	// store is the file system of all private folders, shown is a second, read-only mount of
	// it, and void is what hides files, if a line hides one.
	store, shown, void sysprog.Arg
	// stored is the number of folders in the store.
	stored int
	// made are the folders and files that were created in private folders.
	made map[string]bool
	// ruleset is the Landlock ruleset, and grants what it allows beyond reading.
	ruleset program.Ruleset
	grants  []grant
	// guards are the guarded paths.
	guards []string
	// guarding: the backend has guards at all. unbrokered: without a broker, for tests.
	guarding, unbrokered bool
	// listener is the socket for the filter's listener, if there is one.
	listener sysprog.Arg
	listens  bool
	// handover is the socket on which the network namespace is sent, if it is.
	handover  sysprog.Arg
	handsOver bool
	// noDomain: the program only prepares a sandbox that others enter.
	noDomain bool
	// bareProc: nothing in /proc is hidden.
	bareProc bool
	// seal are the private folders that become read-only at the end.
	seal []sealed
}

// usualSteps is enough for the steps of most programs.
const usualSteps = 320

func (b *Backend) compiler(p *plan.Plan, s *host.Snapshot) *compiler {
	c := newCompiler(p, s)
	if b.Guard != nil {
		c.guards, c.guarding, c.unbrokered = b.Guard(p), true, b.unbrokered
	}
	return c
}

func newCompiler(p *plan.Plan, s *host.Snapshot) *compiler {
	return &compiler{
		plan: p, snap: s, prog: &sysprog.Program{Steps: make([]sysprog.Step, 0, usualSteps)},
		trees: map[string]sysprog.Arg{}, copies: map[string]sysprog.Arg{}, nodes: map[string]sysprog.Arg{}, made: map[string]bool{},
		launch: &backend.Launch{Backend: Name, Dir: "/", Env: p.Environ(), Confined: true, Extras: builtin.Extras{Init: true}},
	}
}

// by starts a block of steps for a rule.
func (c *compiler) by(o policy.Origin, label string) sysprog.Block { return c.prog.For(o, label) }

// do starts a block of steps that every sandbox has.
func (c *compiler) do(label string) sysprog.Block { return c.by(policy.Origin{}, label) }

func (c *compiler) compile() error {
	// The ids come first: the pipe on which the program waits for its parent must not be in
	// the way of the descriptors, or be closed with the others.
	c.identity()
	c.handsOver = c.plan.Network.NeedsHelp()
	c.descriptors()
	c.handNetworkOver()
	c.newRuleset(c.domain().Scopes())
	if err := c.files(); err != nil {
		return err
	}
	c.network()
	c.do("work in " + c.plan.Command.Dir).Chdir(c.plan.Command.Dir)
	if err := c.harden(c.root); err != nil {
		return err
	}
	c.awaitNetwork()
	program.Execute(c.prog, c.fds, program.InitConfig(c.plan, c.fds))
	c.launch.Program, c.launch.Namespaces = c.prog, c.namespaces()
	return c.prog.Validate()
}

// descriptors installs the command's descriptors at their numbers and closes all others.
func (c *compiler) descriptors() {
	c.fds = program.Install(c.do("descriptors"), c.prog, c.launch, c.plan.Command.ExtraFiles, slices.Concat(c.listenerFile(), c.handoverFile())...)
	switch {
	case !c.brokered():
	case c.launch.Awaits:
		c.listenOn(sysprog.FD(c.fds.Status))
	default:
		c.listenOn(c.fds.More[0])
	}
}

// namespaces returns the clone flags.
func (c *compiler) namespaces() uint64 { return namespaces(c.plan.Network.Mode, c.plan.Privileged) }

func namespaces(network policy.NetworkMode, privileged bool) uint64 {
	ns := uint64(sysprog.NewMount | sysprog.NewPID | sysprog.NewIPC | sysprog.NewUTS | sysprog.NewCgroup)
	if network != policy.NetworkHost {
		ns |= sysprog.NewNetwork
	}
	if !privileged {
		ns |= sysprog.NewUser
	}
	return ns
}

// Begin starts the process of a launch: see engine.beginner.
func (b *Backend) Begin(p *policy.Policy, s *host.Snapshot) (*sysprog.Ahead, error) {
	return sysprog.Begin(namespaces(p.Network.Mode, p.Privileged), s.UID == 0 && !p.Privileged)
}

// identity maps the caller's ids. An ordinary user may only map itself. For root every id is
// mapped to itself, which only the parent can do, so that folders of other users can be used.
func (c *compiler) identity() {
	switch {
	case c.plan.Privileged:
	case c.snap.UID == 0:
		c.launch.MapRoot = true
		c.do("wait for the ids to be mapped").SyncParent()
	default:
		b := c.do("map the caller's ids")
		// Without this, a process could leave a group and gain access that is denied to the
		// group.
		b.WriteFile("/proc/self/setgroups", "deny")
		b.WriteFile("/proc/self/uid_map", fmt.Sprintf("%d %d 1", c.snap.UID, c.snap.UID))
		b.WriteFile("/proc/self/gid_map", fmt.Sprintf("%d %d 1", c.snap.GID, c.snap.GID))
	}
}

// network brings the private loopback up, unless that was done already.
func (c *compiler) network() {
	if c.plan.Network.Mode != policy.NetworkHost && !c.handsOver {
		c.loopback()
	}
}

func (c *compiler) loopback() {
	c.by(c.plan.Network.Origin, "bring the private loopback up").LoopbackUp()
}

// harden permanently drops what the setup needed. root is a descriptor of the root folder.
func (c *compiler) harden(root sysprog.Arg) error {
	c.do("no program gains privileges").NoNewPrivs()
	c.addRules(root)
	c.enterDomain(c.ruleset.FD)
	if !c.plan.Privileged {
		program.DropCapabilities(c.prog, c.snap.UID)
	}
	return c.filter()
}

// filter adds the seccomp filter. Its listener gets the number after that of the rules.
func (c *compiler) filter() error {
	filter, err := seccomp.Filter(program.FilterOptions(c.plan, c.snap, program.Notified(c.launch.Guard)))
	if err != nil {
		return err
	}
	b := c.do("filter system calls")
	if c.listens {
		b.SendListener(filter, sysprog.SeccompWaitKillableRecv, c.listener, c.fds.Free+1)
	} else {
		b.Seccomp(filter, 0)
	}
	return nil
}
