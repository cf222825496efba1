//go:build !linux

package sysprog

import (
	"context"
	"syscall"
)

// A Process is a process that a program has made. There is none on this platform.
type Process struct {
	// Pid is its number.
	Pid int
}

// A Child is a process that waits for its parent. There is none on this platform.
type Child struct {
	// Pid is its number.
	Pid int
	// Round counts how often the program has waited, from 0.
	Round int
}

// Run returns [ErrUnsupported].
func (im *Image) Run(context.Context, Options) (*Process, error) { return nil, ErrUnsupported }

// Wait returns [ErrUnsupported].
func (p *Process) Wait() (syscall.WaitStatus, error) {
	var none syscall.WaitStatus
	return none, ErrUnsupported
}

// MapIdentity returns [ErrUnsupported].
func MapIdentity(int) error { return ErrUnsupported }

// An Ahead is a process that was made before its program is known. There is none on this
// platform.
type Ahead struct{}

// Begin returns [ErrUnsupported].
func Begin(uint64, bool) (*Ahead, error) { return nil, ErrUnsupported }

// Discard does nothing.
func (a *Ahead) Discard() {}
