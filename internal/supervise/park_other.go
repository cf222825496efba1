//go:build !linux

package supervise

import (
	"context"
	"errors"

	"github.com/cloche-dev/cloche/backend"
)

// parked is empty: there are no namespaces here.
type parked struct{}

// Park is refused: a sandbox can be kept ready only on Linux.
func Park(_ context.Context, l *backend.Launch, _ MakeNetwork) (*Parked, error) {
	return nil, &SetupError{Backend: l.Backend, Step: "park the sandbox", Err: errors.ErrUnsupported}
}

func (*parked) ended() bool { return true }

func (*parked) retire() {}

func (*parked) end() {}
