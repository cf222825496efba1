//go:build !linux

package console

import (
	"context"
	"io"
	"os"
)

// A TTY is the terminal of this process. On this system no command waits for an answer.
type TTY struct{}

// Open returns nil.
func Open() *TTY { return nil }

// ReadsLines returns false, because it is not known here.
func ReadsLines(*os.File) bool { return false }

// Write fails.
func (*TTY) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Key fails.
func (*TTY) Key(context.Context) (byte, error) { return 0, io.EOF }

// Release does nothing.
func (*TTY) Release() {}
