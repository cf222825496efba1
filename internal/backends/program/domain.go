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

// A Domain says what the Landlock domain of a sandbox with mounts allows. It is the second
// layer: the mounts already make everything read-only that must not be written, and the domain
// denies it if a mount does not. It allows whole trees and denies nothing inside them. So only
// mounts protect what is read-only inside a writable folder, and only mounts hide.
type Domain struct {
	Plan *plan.Plan
	Snap *host.Snapshot
	// Guards are directories in which the broker creates, opens for writing, moves and removes
	// files for the command, and binds its sockets: see package notify. The command itself may
	// only read, execute and use devices there.
	Guards []string
	// Brokered: the broker decides about every call that opens a file for writing or truncates
	// a file by its name.
	Brokered bool
}

// Available reports whether there can be a domain. Before ABI 2 every ruleset denies moving
// files between folders, which commands do often.
func (d *Domain) Available() bool { return d.Snap.Landlock.ABI >= landlockabi.ABIRefer }

// Handled returns what the domain denies unless it is granted. It does not restrict the
// network; the namespace does that.
//
// Each handled right makes every open of a file walk up to the folder where it is granted, or
// to the root. That takes 1 µs, a seventh of what tar needs for a small file. So rights that
// would deny nothing are not handled: reading, if the root is the host's and readable, and
// truncating, if there is a broker. The kernel checks the right to truncate at every open. But
// only the broker truncates a file by its name, and it lets such a call continue only for a
// file that was opened for writing; ftruncate needs such a descriptor, too.
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

// Scopes returns the scopes of the domain of a single command. If an abstract socket is
// granted, the scope for abstract sockets is left out. The network namespace then keeps the
// others away, except in network mode host: see AbstractGaps.
func (d *Domain) Scopes() uint64 {
	if d.grantsAbstract() {
		return landlockabi.ScopeSignal
	}
	return landlockabi.ScopeSignal | landlockabi.ScopeAbstractUnix
}

// SessionScopes returns the scopes that commands in a shared sandbox have in common. Abstract
// sockets belong to the session, unless its network is the host's.
func (d *Domain) SessionScopes() uint64 {
	if d.Plan.Network.Mode == policy.NetworkHost && !d.grantsAbstract() {
		return landlockabi.ScopeAbstractUnix
	}
	return 0
}

func (d *Domain) grantsAbstract() bool {
	return slices.ContainsFunc(d.Plan.Sockets, plan.SocketPath.Abstract)
}

// Needed reports whether something depends on the domain alone: the broker's rules, that the
// host's abstract sockets stay closed in network mode host, or control over where datagrams
// are sent.
func (d *Domain) Needed() bool {
	return len(d.Guards) > 0 || resolvesSockets(d.Snap) || d.Plan.Network.Mode == policy.NetworkHost && !d.grantsAbstract()
}

// AbstractGaps lists the gaps about abstract sockets of the host. They only exist in network
// mode host, where only the domain can close them, all or none.
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
	// forWrite are all rights except making device nodes.
	forWrite = landlockabi.ForRead | landlockabi.WriteFile | landlockabi.Truncate | landlockabi.RemoveDir |
		landlockabi.RemoveFile | landlockabi.Refer | landlockabi.MakeDir | landlockabi.MakeReg | landlockabi.MakeSock |
		landlockabi.MakeFifo | landlockabi.MakeSym | landlockabi.IoctlDev
	// forGuarded are the rights of the command itself where the broker does the rest.
	forGuarded = landlockabi.ForRead | landlockabi.IoctlDev
)

// Rights returns a line's rights beyond those of the root, 0 for none.
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

// OfRoot returns the rights for everything that is shown, 0 for none.
func (d *Domain) OfRoot() uint64 {
	line := d.Plan.Lookup("/")
	return (landlockabi.ForRead | d.Rights(&line)) & d.Handled(0).FS
}

// Written reports whether something at or below the line is writable. For root nothing in
// /proc is.
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

// Guarded reports whether the broker writes for the command at a path.
func (d *Domain) Guarded(path string) bool { return slices.Contains(d.Guards, path) }

// HoldsFolders reports whether the command itself can move nothing in a writable folder: the
// folder is guarded, and no folder around it is writable directly.
func (d *Domain) HoldsFolders(path string) bool {
	return d.Available() && d.Guarded(path) && d.OpenAround(path) == ""
}

// OpenAround returns the path of a line around a path in which the command may write directly,
// or "". Its rights then apply to the path too.
func (d *Domain) OpenAround(path string) string {
	for i := range d.Plan.Paths {
		o := &d.Plan.Paths[i]
		if o.Path != path && o.Kind == hostfs.Dir && pathx.Within(o.Path, path) && d.Written(o) && !d.Guarded(o.Path) {
			return o.Path
		}
	}
	return ""
}
