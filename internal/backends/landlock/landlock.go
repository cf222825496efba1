// Package landlock enforces plans where user namespaces are refused: with
// Landlock, which any process may put itself under, a seccomp filter, and no
// other program. Compiling is pure: a plan becomes a [sysprog.Program], the
// list of system calls that confines a new process and ends in executing
// cloche's init.
//
// # What is different without mounts
//
// Nothing can be shown elsewhere, covered, or made private. Landlock allows and
// never denies: a right over a folder holds for everything in it. So
//
//   - a folder that holds something hidden is taken apart: each of its entries is
//     allowed on its own, and not the folder. What is made in it later, or
//     replaced, is out of reach until the next command, and such a folder can be
//     listed only if nothing but files is hidden in it. In a writable folder
//     nothing new can be made then, which is a gap in paths.write; a secret that
//     can be read would be worse;
//   - what is only readable or protected inside a writable folder stays writable,
//     since a workspace in which nothing can be made is of no use. It is a gap;
//   - /tmp cannot be private and is closed, like /dev/shm; of /dev the harmless
//     devices can be used, and no terminals can be made;
//   - /proc is the host's. Landlock keeps a process from tracing others and from
//     all that depends on it (environ, fd, root, mem), not from seeing them;
//   - metadata is open: names, modes and times of anything can be looked at, and
//     those of files that the user owns can be changed;
//   - sockets, the internet's and unix ones that could be connected to, are
//     denied by the seccomp filter, as are the host's IPC objects.
//
// Every difference that matters to a policy is a gap, so a strict policy is
// refused. Landlock rules are about files and not names: the child opens each
// path component by component, follows no symbolic link, and makes the rule from
// the descriptor.
//
// # Lifetime
//
// There is no pid namespace to end with its pid 1. The init adopts orphans and
// kills all its descendants at the end. From ABI 6 on it does so from a domain
// that the command cannot send signals to.
//
// At the end one kill(-1) by the init, which its domain limits to its descendants,
// ends them all at once, so nothing can escape by forking. The supervisor never kills
// this init first; it closes the lifeline. Before ABI 6 the init finds its descendants
// in /proc, and the command could kill it: the gap lifetime. The limit on processes is
// sampled, because the kernel would count all processes of the user. A run takes three
// of the 16 domains that the kernel nests; the probe tries that too.
//
// The function downgrade is pure and decides, for every ABI, the ruleset, the filter
// and the gaps. docs/reference/backends.md lists the gaps. The constants are a table
// of our own, tested against golang.org/x/sys/unix: the package of go-landlock would
// also link libcap's psx.
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
