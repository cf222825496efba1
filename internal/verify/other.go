//go:build !linux

package verify

import (
	"errors"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/plan"
)

var errOther = errors.New("rules can be verified on Linux only; see cloche explain for what they are")

// A Run is the outside of one verification, on Linux.
type Run struct{}

// Prepare fails: there is no prober on this system.
func Prepare(*plan.Plan, *backend.Launch) (*Run, error) { return nil, errOther }

// Input is never called.
func (*Run) Input() ([]byte, error) { return nil, errOther }

// Findings is never called.
func (*Run) Findings([]byte) ([]Finding, error) { return nil, errOther }

// Close does nothing.
func (*Run) Close() error { return nil }
