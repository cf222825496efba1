package supervise

import (
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/policy"
)

// noLimits is a Spec for the launch with every limit taken away.
func noLimits(l *backend.Launch) Spec {
	return Spec{Launch: l, Output: policy.Unlimited, Memory: policy.Unlimited, Processes: policy.Unlimited}
}
