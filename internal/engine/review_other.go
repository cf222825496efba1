//go:build !linux

package engine

import (
	"context"

	"github.com/cloche-dev/cloche/host"
)

// Only the backend native shows folders copy-on-write, and it needs Linux.

func mountPoints() ([]string, error) { return nil, nil }

func cannotReview(string, string, []string) (reason, fix string) {
	return "this system has no overlayfs", "run cloche on Linux"
}

func probeReview(context.Context, *host.Snapshot, string) host.Probe {
	return host.Probe{Outcome: host.No, Reason: "this system has no overlayfs"}
}
