//go:build !linux

package cli

import (
	"context"
	"io"
)

// A ttyConsole is never there: no command waits for an answer here.
type ttyConsole struct{}

func openConsole() *ttyConsole { return nil }

func (*ttyConsole) Write([]byte) (int, error)         { return 0, io.ErrClosedPipe }
func (*ttyConsole) Key(context.Context) (byte, error) { return 0, io.EOF }
func (*ttyConsole) Release()                          {}
