package program

import (
	"slices"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Domain says what the Landlock domain below a sandbox made of mounts allows.
// It is the second layer: the mounts already make everything read-only that is
// not to be written, and if one of them did not, this would. It allows whole
// trees and denies nothing in them, so what is read-only inside something
// writable, and what is hidden, is held by mounts alone.
type Domain struct {
	Plan *plan.Plan
	Snap *host.Snapshot
	// Guards are directories in which a broker outside of the sandbox makes, opens
	// for writing, moves and removes everything for the command, and binds its
	// sockets: see package notify. The command itself may only read there, execute
	// and use devices.
	Guards []string
	// Brokered: the filter asks a broker about every call that opens for writing
	// or empties a file by its name.
	Brokered bool
}

// Available reports whether there can be a domain. Before ABI 2 every ruleset
// denies moving files between folders, which commands do all the time.
func (d *Domain) Available() bool { return d.Snap.Landlock.ABI >= landlockabi.ABIRefer }

// Handled is what the domain denies unless it is granted. The network is the
// namespace's.
//
// A right that is handled costs every open of a file a walk up to where it is
// granted, or to the root: 1 µs, a seventh of what tar does for a small file. So
// what denies nothing is not handled. Reading is granted from the root on, where
// that is the host's. Emptying a file is looked for whenever a file is opened,
// however it is opened; by its name only a broker empties one, who lets such
// a call go on only for a descriptor that can be written, and by a descriptor it
// takes one of those, too.
func (d *Domain) Handled(scopes uint64) landlockabi.Ruleset {
	r := landlockabi.Handled(d.Snap.Landlock.ABI)
	if d.Plan.Lookup("/").Content == plan.Host {
		r.FS &^= landlockabi.ForRead
	}
	if d.Brokered {
		r.FS &^= landlockabi.Truncate
	}
	r.Net = 0
	r.Scoped &= scopes
	return r
}

// Scopes are what the domain of a command on its own is closed to. Where an
// abstract socket is granted, that leads out of the domain: it is the network's
// namespace then that has no others.
func (d *Domain) Scopes() uint64 {
	if d.grantsAbstract() {
		return landlockabi.ScopeSignal
	}
	return landlockabi.ScopeSignal | landlockabi.ScopeAbstractUnix
}

// SessionScopes are what the domains of commands that share a sandbox are closed
// to, beside what each is closed to by itself. Abstract sockets are the session's
// own, unless its network is the host's.
func (d *Domain) SessionScopes() uint64 {
	if d.Plan.Network.Mode == policy.NetworkHost && !d.grantsAbstract() {
		return landlockabi.ScopeAbstractUnix
	}
	return 0
}

func (d *Domain) grantsAbstract() bool {
	return slices.ContainsFunc(d.Plan.Sockets, plan.SocketPath.Abstract)
}

// Needed reports whether something is held by the domain alone: the rules of a
// broker, that the abstract sockets of the host's own network stay closed, or what
// datagrams can be sent to.
func (d *Domain) Needed() bool {
	return len(d.Guards) > 0 || resolvesSockets(d.Snap) || d.Plan.Network.Mode == policy.NetworkHost && !d.grantsAbstract()
}

// AbstractGaps says where abstract sockets of the host can be reached: in its own
// network, where nothing but the domain keeps them closed, all or none.
func (d *Domain) AbstractGaps() []backend.Gap {
	if d.Plan.Network.Mode != policy.NetworkHost {
		return nil
	}
	for _, s := range d.Plan.Sockets {
		if s.Abstract() {
			return []backend.Gap{{Rule: "sockets", Subject: s.Path, Origin: s.Origin,
				Reason: "in the host's network one abstract socket cannot be opened without all of them",
				Fix:    "use another network mode, in which connections to it are carried"}}
		}
	}
	if d.Snap.Landlock.ABI >= landlockabi.ABIScope {
		return nil
	}
	return []backend.Gap{{Rule: "sockets", Subject: "abstract sockets", Origin: d.Plan.Network.Origin, Optional: true,
		Reason: "in the host's network they are kept closed by Landlock of Linux 6.12, which is missing: all of them can be reached",
		Fix:    "use Linux 6.12 or newer with Landlock, or another network mode"}}
}

const (
	// forWrite is everything but making device nodes.
	forWrite = landlockabi.ForRead | landlockabi.WriteFile | landlockabi.Truncate | landlockabi.RemoveDir |
		landlockabi.RemoveFile | landlockabi.Refer | landlockabi.MakeDir | landlockabi.MakeReg | landlockabi.MakeSock |
		landlockabi.MakeFifo | landlockabi.MakeSym | landlockabi.IoctlDev
	// forGuarded is what the command does itself where a broker does the rest.
	forGuarded = landlockabi.ForRead | landlockabi.IoctlDev
)

// Rights are those of a line beyond what the root gives, 0 for none.
func (d *Domain) Rights(e *plan.Path) uint64 {
	if d.Plan.GrantsSocket(e.Path) {
		return landlockabi.ResolveUnix & d.Handled(0).FS
	}
	if !d.Written(e) || d.OpenAround(e.Path) != "" {
		return 0
	}
	rights := uint64(forWrite)
	if d.Guarded(e.Path) {
		rights = forGuarded
	}
	if e.Kind != hostfs.Dir {
		rights &= landlockabi.OfFiles
	}
	return rights & d.Handled(0).FS
}

// OfRoot are the rights over everything that is shown, 0 for none.
func (d *Domain) OfRoot() uint64 {
	line := d.Plan.Lookup("/")
	return (landlockabi.ForRead | d.Rights(&line)) & d.Handled(0).FS
}

// Written reports whether something at or below the line can be written. For
// root nothing in /proc can.
func (d *Domain) Written(e *plan.Path) bool {
	switch e.Content {
	case plan.Proc:
		return d.Snap.UID != 0
	case plan.Devices:
		return true
	case plan.Host, plan.Empty:
		return e.Access == policy.Write && e.Kind != hostfs.Socket && e.Kind != hostfs.Missing
	}
	return false
}

// Guarded reports whether a broker does the writing of a line.
func (d *Domain) Guarded(path string) bool { return slices.Contains(d.Guards, path) }

// HoldsFolders reports whether the command itself can move nothing in a writable
// folder: it is guarded, and in none that is writable as a whole.
func (d *Domain) HoldsFolders(path string) bool {
	return d.Available() && d.Guarded(path) && d.OpenAround(path) == ""
}

// OpenAround is the path of a line around a path in which the command may write
// by itself, which then holds for this path too, or "".
func (d *Domain) OpenAround(path string) string {
	for i := range d.Plan.Paths {
		o := &d.Plan.Paths[i]
		if o.Path != path && o.Kind == hostfs.Dir && pathx.Within(o.Path, path) && d.Written(o) && !d.Guarded(o.Path) {
			return o.Path
		}
	}
	return ""
}
