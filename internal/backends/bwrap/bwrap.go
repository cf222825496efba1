// Package bwrap enforces plans with bubblewrap. Compiling is pure: a plan
// becomes the arguments of one bwrap process and the descriptors it is given.
//
// Everything that a plan shows is bound from a descriptor that the supervisor opened and
// checked first. If a path is replaced by a symbolic link after the plan was made, that is an
// error, and nothing else is shown instead. The options are passed through a descriptor too:
// otherwise every user of the machine could read the environment in /proc.
//
// bubblewrap runs with an empty environment, so that no variable of the command, such
// as LD_PRELOAD, acts outside. Pid 1 inside is cloche's init and not bubblewrap's
// (--as-pid-1): package initprog says why. bubblewrap's --die-with-parent is not used,
// because a parent killed between bubblewrap's clone and its first write would leave
// the child waiting forever; the init's lifeline does this job.
//
// As root, a user namespace that maps only root would make folders of other users
// unusable. So bubblewrap is started in a user namespace that maps every id to itself,
// and the command keeps CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_FOWNER in that namespace
// only. With allow_privileged there is no user namespace.
package bwrap

import (
	"fmt"
	"strconv"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Name is the backend's name in policies.
const Name = "bwrap"

// maxOptions is bubblewrap's own limit on its arguments.
const maxOptions = 9000

// initPath is the path of the sandbox's pid 1 inside; /dev is private.
const initPath = "/dev/cloche-init"

// Config is the policy's configuration of the backend.
type Config struct {
	// Args are added to bubblewrap's options, last.
	Args []string
}

// A Prober finds out whether bubblewrap works on this machine, by making a sandbox.
type Prober func(*host.Snapshot) host.Bwrap

// Backend is the bubblewrap backend.
type Backend struct {
	config Config
	probe  Prober
}

// New returns the backend. If probe is nil, the outcome in the snapshot is used.
func New(c Config, probe Prober) *Backend {
	if probe == nil {
		probe = func(s *host.Snapshot) host.Bwrap { return s.Bwrap }
	}
	return &Backend{config: c, probe: probe}
}

// Name implements backend.Backend.
func (*Backend) Name() string { return Name }

// Mounts implements backend.Backend.
func (*Backend) Mounts() bool { return true }

// Available implements backend.Backend.
func (b *Backend) Available(s *host.Snapshot) error {
	found := b.probe(s)
	switch found.Probe.Outcome {
	case host.Yes:
		return tooOld(found)
	case host.No:
		return &backend.UnavailableError{Backend: Name, Probe: found.Probe}
	default:
		return fmt.Errorf("backend %s: %w: %s", Name, backend.ErrInconclusive, found.Probe.Reason)
	}
}

// tooOld returns an error if bubblewrap lacks an option that every sandbox needs: the init
// could not be made executable.
func tooOld(found host.Bwrap) error {
	for _, option := range []string{"perms", "chmod"} {
		if !found.Has(option) {
			return &backend.UnavailableError{Backend: Name, Probe: host.Probe{Outcome: host.No, Cause: cause.TooOld,
				Reason: fmt.Sprintf("bubblewrap %s at %s has no --%s", found.Version, found.Path, option),
				Fix:    "install bubblewrap 0.5.0 or newer"}}
		}
	}
	return nil
}

// Compile implements backend.Backend.
func (b *Backend) Compile(p *plan.Plan, s *host.Snapshot) (*backend.Launch, error) {
	if p.Command == nil {
		return nil, fmt.Errorf("backend %s: the plan has no command", Name)
	}
	c := &compiler{plan: p, snap: s, bwrap: b.probe(s), root: s.UID == 0, landlock: (&program.Domain{Snap: s}).Available(), launch: &backend.Launch{
		Backend: Name, Dir: "/", Env: []string{}, FirstFD: 3 + p.Command.ExtraFiles, Confined: true, Extras: builtin.Extras{Init: true},
	}}
	c.namespaces()
	c.mounts()
	if err := c.filter(); err != nil {
		return nil, err
	}
	if err := c.init(); err != nil {
		return nil, err
	}
	c.environment()
	c.add("--chdir", p.Command.Dir)
	c.add(b.config.Args...)
	c.gaps()
	if err := c.guard(s); err != nil {
		return nil, err
	}
	return c.finish()
}

// A compiler builds one launch.
type compiler struct {
	plan  *plan.Plan
	snap  *host.Snapshot
	bwrap host.Bwrap
	root  bool
	// landlock: the kernel supports what the guard needs.
	landlock bool
	launch   *backend.Launch
	options  []string
	shown    []string // options without the values of variables
	// guardFD is the descriptor of the guard's program, if there is one. guardFiles is the
	// number of files after it.
	guardFD, guardFiles int
}

func (c *compiler) add(words ...string) {
	c.options = append(c.options, words...)
	c.shown = append(c.shown, words...)
}

// file adds a descriptor and returns its number.
func (c *compiler) file(f backend.File) int {
	c.launch.Files = append(c.launch.Files, f)
	return c.launch.FirstFD + len(c.launch.Files) - 1
}

// data adds a descriptor with the given content and returns its number as text.
func (c *compiler) data(content []byte) string {
	return strconv.Itoa(c.file(backend.File{Kind: backend.Data, Data: content}))
}

func (c *compiler) gap(g backend.Gap) { c.launch.Gaps = append(c.launch.Gaps, g) }

// keptByRoot are the capabilities over files that a command of root keeps, in its own user
// namespace. Without them root could not use a folder of another user. They do not allow
// changing mounts: hidden and read-only paths stay so.
var keptByRoot = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER"}

func (c *compiler) namespaces() {
	c.add("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup")
	if c.plan.Network.Mode != policy.NetworkHost {
		c.add("--unshare-net")
	}
	switch {
	case c.plan.Privileged:
	case c.root && c.bwrap.MapRoot:
		c.launch.MapRoot = true
		c.add("--cap-drop", "ALL")
		for _, name := range keptByRoot {
			c.add("--cap-add", name)
		}
	default:
		c.add("--unshare-user")
	}
	c.add("--new-session", "--as-pid-1")
	c.add("--json-status-fd", strconv.Itoa(c.file(backend.File{Kind: builtin.BwrapStatus})))
}

// brokered reports whether there is a guard whose filter has a listener.
func (c *compiler) brokered() bool { return c.landlock && c.plan.JudgesNames() }

// filter adds the seccomp filter. It also denies namespaces and mounts to a privileged command:
// without a user namespace its mounts are not locked, and it could unmount everything that
// hides a path.
//
// With a broker, the guard's filter denies the calls that are recorded, and this one leaves them
// out. Only bubblewrap, the init and the guard run without that filter; the command can neither trace
// the init nor write its memory.
func (c *compiler) filter() error {
	if !c.bwrap.Has("seccomp") {
		c.gap(backend.Gap{Rule: "system calls", Reason: "this bubblewrap takes no seccomp filter", Fix: "install bubblewrap 0.3 or newer"})
		return nil
	}
	o := program.FilterOptions(c.plan, c.snap, 0)
	o.LeaveDenied = c.brokered() && !c.plan.Privileged
	filter, err := seccomp.Filter(o)
	if err != nil {
		return fmt.Errorf("backend %s: %w", Name, err)
	}
	c.add("--seccomp", c.data(filter))
	return nil
}

// init adds cloche's static pid 1, which starts and reaps the command.
func (c *compiler) init() error {
	elf, err := initprog.Binary()
	if err != nil {
		return fmt.Errorf("backend %s: %w", Name, err)
	}
	c.add("--perms", "0555", "--ro-bind-data", c.data(elf), initPath)
	return nil
}

func (c *compiler) environment() {
	for _, v := range c.plan.Env {
		c.options = append(c.options, "--setenv", v.Name, v.Value)
		c.shown = append(c.shown, "--setenv", v.Name, "…")
	}
}

// finish puts the options into a descriptor and the command after "--".
func (c *compiler) finish() (*backend.Launch, error) {
	if len(c.options) > maxOptions {
		return nil, fmt.Errorf("backend %s: the plan needs %d options and bubblewrap takes %d; use fewer path rules, or rules for the folders around them", Name, len(c.options), maxOptions)
	}
	var data []byte
	for _, o := range c.options {
		data = append(append(data, o...), 0)
	}
	status := c.file(backend.File{Kind: builtin.InitStatus})
	lifeline := c.file(backend.File{Kind: builtin.Lifeline})
	options := c.data(data)
	cmd := c.plan.Command
	c.launch.Options = c.shown
	c.launch.Path = c.bwrap.Path
	c.launch.Argv = append([]string{"bwrap", "--args", options, "--", initPath}, initprog.Config{
		StatusFD: status, LifelineFD: lifeline, ProgramFD: c.guardFD, ProgramFiles: c.guardFiles, Terminal: cmd.Terminal, KeepFDs: cmd.ExtraFiles,
		Processes: c.plan.Limit(plan.LimitProcesses), OpenFiles: c.plan.Limit(plan.LimitOpenFiles), FileSize: c.plan.Limit(plan.LimitFileSize),
		Path: cmd.Path, Args: cmd.Args,
	}.Argv("cloche-init")[1:]...)
	return c.launch, nil
}
