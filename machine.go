package cloche

import (
	"context"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/seatbelt"
	"github.com/cloche-dev/cloche/internal/engine"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// InForce returns the policy that this process is held to, as text, if it runs
// inside of a sandbox of cloche that shows it. The error wraps os.ErrNotExist if
// it does not: the backend landlock has no mounts to show it with, and a policy
// that opens the host's /run leaves no place for it.
func InForce() (string, error) { return engine.InForce() }

// Doctor looks at this machine closely: every fact, every live probe.
func Doctor(ctx context.Context, workspace string) (*host.Snapshot, error) {
	return engine.Doctor(ctx, workspace)
}

// DefaultRegistry returns a registry with the built-in backends, configured as
// the policy says. Outcomes of live probes are remembered in it and, if they
// say yes, in cloche's cache folder.
func DefaultRegistry(config policy.Backend) (*backend.Registry, error) {
	return engine.DefaultRegistry(config)
}

// SeatbeltProfile returns the profile of macOS's sandbox that the backend
// seatbelt makes of a plan, and what of the plan it does not enforce. It works on
// every system: for looking, and for comparing.
func SeatbeltProfile(p *plan.Plan) (string, []backend.Gap, error) { return seatbelt.Profile(p) }
