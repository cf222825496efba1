//go:build !linux

package supervise

import (
	"context"
	"io"
)

// A Held is the caller's terminal while the command is kept from it. On this
// system commands have no terminal of their own.
type Held struct{}

// HoldTerminal is false on this system.
func (p *Process) HoldTerminal() (*Held, bool) { return nil, false }

// PrintLine prints nothing.
func (p *Process) PrintLine(string) bool { return false }

// Write prints nothing.
func (h *Held) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Key has none.
func (h *Held) Key(context.Context) (byte, error) { return 0, io.EOF }

// Release does nothing.
func (h *Held) Release() {}

func (t *terminal) gated(w io.Writer, _ *gate) io.Writer { return w }
