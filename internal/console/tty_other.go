//go:build !linux

package console

import (
	"context"
	"io"
	"os"
)

// A TTY is the terminal of this process. No command waits for an answer here.
type TTY struct{}

// Open returns nil.
func Open() *TTY { return nil }

// ReadsLines is not known here.
func ReadsLines(*os.File) bool { return false }

// Write prints nothing.
func (*TTY) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Key has none.
func (*TTY) Key(context.Context) (byte, error) { return 0, io.EOF }

// Release does nothing.
func (*TTY) Release() {}
