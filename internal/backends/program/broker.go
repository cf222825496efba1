package program

import (
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// NewGuard returns what the broker of a sandbox enforces: see package notify. The roots are
// the guarded folders.
//
// Rules that hide by a pattern can only be enforced if the broker opens every file for
// reading. Landlock cannot deny reading for this purpose: it would deny execution as well.
func NewGuard(p *plan.Plan, s *host.Snapshot, roots []string) *builtin.Guard {
	return &builtin.Guard{Roots: roots, Reads: p.JudgesReads(), Connects: judgesSockets(p), Datagrams: refusesDatagrams(p, s), Records: p.Denials}
}

// judgesSockets reports whether the broker connects sockets for the command. It does not for a
// privileged command, which may be another user than the broker: its peers would see the
// broker's user.
func judgesSockets(p *plan.Plan) bool { return !p.Privileged }

// resolvesSockets reports whether the kernel itself denies access to the host's sockets, for
// every system call.
func resolvesSockets(s *host.Snapshot) bool { return s.Landlock.ABI >= landlockabi.ABIUnix }

// refusesDatagrams reports whether the command gets no unix datagram sockets. It could use
// them to send to a socket of the host without a check: the sending calls are too frequent for
// a broker, and their address is in memory.
func refusesDatagrams(p *plan.Plan, s *host.Snapshot) bool {
	return judgesSockets(p) && p.Datagrams == nil && !resolvesSockets(s)
}

// FilterOptions returns the options of the filter for a command in its own user namespace.
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

// Notified returns the calls that a guard decides about; none if there is no guard.
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
