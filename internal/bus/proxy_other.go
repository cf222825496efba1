//go:build !unix

package bus

import (
	"context"
	"errors"

	"github.com/cloche-dev/cloche/plan"
)

// A Proxy cannot be made on this system, which has no session bus.
type Proxy struct{}

// Reserve fails.
func Reserve(...string) (*Proxy, error) {
	return nil, &Error{Step: "make a folder for its socket", Err: errors.ErrUnsupported}
}

// Socket returns nothing.
func (*Proxy) Socket() string { return "" }

// Alive is never true.
func (*Proxy) Alive() bool { return false }

// Start fails.
func (*Proxy) Start(context.Context, string, *plan.Bus) error {
	return &Error{Step: "start " + Program, Err: errors.ErrUnsupported}
}

// Unlink does nothing.
func (*Proxy) Unlink() {}

// EndWith does nothing.
func (*Proxy) EndWith(<-chan struct{}) {}

// Close does nothing.
func (*Proxy) Close() {}
