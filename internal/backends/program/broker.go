package program

import (
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/plan"
)

// NewGuard is what the broker of a sandbox has to hold, where there is one: see
// package notify. The roots are the guarded folders.
//
// Rules that hide by a pattern hold in no other way than that the broker opens
// every file that is read. Landlock cannot take reading away for this: it would
// take execution with it.
func NewGuard(p *plan.Plan, roots []string) *backend.Guard {
	return &backend.Guard{Roots: roots, Reads: p.JudgesReads()}
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
	return groups
}
