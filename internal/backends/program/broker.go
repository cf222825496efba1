package program

import (
	"github.com/cloche-dev/cloche/backend"
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
func NewGuard(p *plan.Plan, roots []string) *backend.Guard {
	return &backend.Guard{Roots: roots, Reads: p.JudgesReads(), Connects: judgesSockets(p), Records: p.Denials}
}

// judgesSockets reports whether the broker connects for the command. In the host's
// own network a socket of the host cannot be told from one of the command. What
// keeps its privileges may be another user than the broker, which its peers would
// see.
func judgesSockets(p *plan.Plan) bool {
	return p.Network.Mode != policy.NetworkHost && !p.Privileged
}

// Notified are the calls that a guard has to be asked about: none if there is
// no guard.
func Notified(g *backend.Guard) seccomp.Notify {
	if g == nil {
		return 0
	}
	groups := seccomp.NotifyWrites
	if g.Reads {
		groups |= seccomp.NotifyReads
	}
	if g.Connects {
		groups |= seccomp.NotifyDial
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
