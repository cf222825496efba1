//go:build !darwin

package seatbelt

import (
	"context"
	"runtime"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
)

// Probe returns that this is another system.
func Probe(context.Context, *host.Snapshot) host.Probe {
	return host.Probe{Outcome: host.No, Cause: cause.UnsupportedOS, Reason: "Seatbelt is a part of macOS, and this is " + runtime.GOOS}
}
