package program

import (
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// NewGuard is what the broker of a sandbox has to hold, where there is one: see
// package notify. The roots are the guarded folders.
//
// Rules that hide by a pattern hold in no other way than that the broker opens
// every file that is read. Landlock cannot take reading away for this: it would
// take execution with it.
func NewGuard(p *plan.Plan, s *host.Snapshot, roots []string) *builtin.Guard {
	return &builtin.Guard{Roots: roots, Reads: p.JudgesReads(), Connects: judgesSockets(p), Datagrams: refusesDatagrams(p, s), Records: p.Denials}
}

// judgesSockets reports whether the broker connects for the command. What keeps its
// privileges may be another user than the broker, which its peers would see.
func judgesSockets(p *plan.Plan) bool { return !p.Privileged }

// resolvesSockets reports whether the kernel itself keeps the command from sockets
// of the host, by whatever call it would reach them.
func resolvesSockets(s *host.Snapshot) bool { return s.Landlock.ABI >= landlockabi.ABIUnix }

// refusesDatagrams reports whether the command has no unix datagram sockets, because
// it could send to a socket of the host by them and nobody would be asked: the calls
// that send are too frequent for a broker, and have the address in memory.
func refusesDatagrams(p *plan.Plan, s *host.Snapshot) bool {
	return judgesSockets(p) && p.Datagrams == nil && !resolvesSockets(s)
}

// FilterOptions are those of the filter for a command in its own user namespace.
func FilterOptions(p *plan.Plan, s *host.Snapshot, notify seccomp.Notify) seccomp.Options {
	if p.Privileged { // it could make mounts: the filter alone decides
		notify &^= seccomp.NotifyDenied
	}
	o := seccomp.Options{Arch: s.Arch, Notify: notify}
	if s.UID != 0 && !p.Privileged {
		o.OneOwner, o.UID, o.GID = true, uint32(s.UID), uint32(s.GID)
	}
	return o
}

// Notified are the calls that a guard has to be asked about: none if there is
// no guard.
func Notified(g *builtin.Guard) seccomp.Notify {
	if g == nil {
		return 0
	}
	groups := seccomp.NotifyWrites | seccomp.NotifyDenied
	if g.Reads {
		groups |= seccomp.NotifyReads | seccomp.NotifyExec
	}
	if g.Connects {
		groups |= seccomp.NotifyDial
	}
	if g.Datagrams {
		groups |= seccomp.NotifyDatagrams
	}
	switch g.Records {
	case policy.RecordUsual:
		groups |= seccomp.NotifyPlainReads | seccomp.NotifyExec
	case policy.RecordThorough:
		groups |= seccomp.NotifyEveryRead | seccomp.NotifyExec
	case policy.RecordChanges:
	}
	return groups
}
