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

// InForce returns the text of the policy that this process runs under, if it runs in a sandbox
// of cloche that shows it. Otherwise the error wraps os.ErrNotExist. The backend landlock has
// no mounts to show the text with, and a policy that opens the host's /run leaves no place for
// it.
func InForce() (string, error) { return engine.InForce() }

// Doctor collects every fact about this machine and runs every live probe.
func Doctor(ctx context.Context, workspace string) (*host.Snapshot, error) {
	return engine.Doctor(ctx, workspace)
}

// DefaultRegistry returns a registry with the built-in backends, configured by the policy. It
// remembers the outcomes of live probes; those that are "yes" are also kept in cloche's cache
// folder.
func DefaultRegistry(config policy.Backend) (*backend.Registry, error) {
	return engine.DefaultRegistry(config)
}

// SeatbeltProfile returns the macOS sandbox profile that the backend seatbelt makes from a
// plan, and the parts of the plan that it does not enforce. It works on every system, so that
// profiles can be read and compared anywhere.
func SeatbeltProfile(p *plan.Plan) (string, []backend.Gap, error) { return seatbelt.Profile(p) }
