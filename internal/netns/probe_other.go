//go:build !linux

package netns

import (
	"context"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
)

// ProbeTUN reports no: only Linux has these namespaces.
func ProbeTUN(context.Context) host.Probe { return notHere() }

// ProbeVeth reports no, for the same reason.
func ProbeVeth(context.Context) host.Probe { return notHere() }

func notHere() host.Probe {
	return host.Probe{Outcome: host.No, Cause: cause.UnsupportedOS, Reason: "it needs Linux"}
}
