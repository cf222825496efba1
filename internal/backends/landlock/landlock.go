// Package landlock enforces plans without user namespaces: with Landlock, which needs no
// privileges, and a seccomp filter, and without another program. Compiling is pure: a plan
// becomes a [sysprog.Program], the list of system calls that confines a new process and
// finally executes cloche's init.
//
// # What is different without mounts
//
// Without mounts, nothing can be shown at another path, hidden by a mount, or made private.
// Landlock only allows: a right for a folder applies to everything in it. So
//
//   - a folder that contains something hidden is split: each of its entries is
//     allowed separately, and not the folder. Entries that are created or replaced
//     later cannot be used until the next command, and such a folder can be listed
//     only if nothing but files is hidden in it. In a writable folder, nothing new
//     can be created then. This is a gap in paths.write, but a readable secret would
//     be worse;
//   - a path that is only readable or protected inside a writable folder stays
//     writable, because a workspace in which nothing can be created is useless. It
//     is a gap;
//   - /tmp cannot be private and is closed, like /dev/shm. Only the harmless devices
//     of /dev can be used, and no terminals can be made;
//   - /proc is the host's. Landlock prevents tracing other processes and everything
//     that depends on it (environ, fd, root, mem), but they are visible;
//   - metadata is open: names, modes and times of all files are visible, and those
//     of files that the user owns can be changed;
//   - internet sockets, unix sockets that could be connected to, and the host's IPC
//     objects are denied by the seccomp filter.
//
// Every difference that matters to a policy is a gap, so a strict policy does not run.
// Landlock rules are about files, not names: the child opens each path component by component,
// follows no symbolic link, and makes the rule from the descriptor.
//
// # Lifetime
//
// There is no pid namespace whose end would kill all processes. The init adopts orphans and
// kills all its descendants at the end. From ABI 6 on it does so from a domain to which the
// command cannot send signals.
//
// At the end, one kill(-1) by the init, which its domain limits to its descendants, kills them
// all at once, so that none can escape by forking. The supervisor never kills this init first;
// it closes the lifeline. Before ABI 6 the init finds its descendants in /proc, and the
// command could kill it: that is the gap lifetime. The limit on processes is sampled, because
// the kernel would count all processes of the user. A run needs three of the 16 nested domains
// that the kernel allows; the probe tries that too.
//
// The function downgrade is pure and decides, for every ABI, the ruleset, the filter and the
// gaps. docs/reference/backends.md lists the gaps. The constants are cloche's own table,
// tested against golang.org/x/sys/unix: the go-landlock package would also link libcap's psx.
package landlock

import (
	"fmt"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/plan"
)

// Name is the backend's name in policies.
const Name = "landlock"

// Backend is the Landlock backend.
type Backend struct {
	probe program.Prober
}

// New returns the backend.
func New(probe program.Prober) *Backend { return &Backend{probe: probe} }

// Name implements backend.Backend.
func (*Backend) Name() string { return Name }

// Mounts implements backend.Backend.
func (*Backend) Mounts() bool { return false }

// Available implements backend.Backend.
func (b *Backend) Available(s *host.Snapshot) error { return program.Available(Name, b.probe(s)) }

// Compile implements backend.Backend.
func (b *Backend) Compile(p *plan.Plan, s *host.Snapshot) (*backend.Launch, error) {
	if p.Command == nil {
		return nil, fmt.Errorf("backend %s: the plan has no command", Name)
	}
	if s.Landlock.ABI < 1 {
		return nil, fmt.Errorf("backend %s: %s", Name, s.Landlock.Reason)
	}
	c := &compiler{plan: p, snap: s, launch: &backend.Launch{
		Backend: Name, Dir: "/", Env: p.Environ(), Confined: true, Extras: builtin.Extras{Init: true, Adopts: true},
	}}
	if err := c.compile(); err != nil {
		return nil, fmt.Errorf("backend %s: %w", Name, err)
	}
	return c.launch, nil
}
