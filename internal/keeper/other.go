//go:build !linux

package keeper

import (
	"context"
	"errors"
	"syscall"
)

// A Key is empty: there are no keepers on this system.
type Key string

var errNone = errors.New("there is no warm sandbox to keep on this system")

// KeyOf fails: there are no keepers on this system.
func KeyOf(int) (Key, error) { return "", errNone }

// A Conn does not exist on this system.
type Conn struct{}

// Dial fails.
func Dial(string, Key) (*Conn, error) { return nil, errNone }

// Close does nothing.
func (*Conn) Close() {}

// Run runs nothing.
func (*Conn) Run(*Call) (int, bool, error) { return 0, false, errNone }

// Start fails.
func Start(string, Key, int, ...string) error { return errNone }

// Running returns none.
func Running(string) []int { return nil }

// A Client does not exist on this system.
type Client struct {
	*Call
	PID int
}

// Deliver does nothing.
func (*Client) Deliver(func(syscall.Signal)) {}

// Serve fails.
func Serve(string, Key, int, func(context.Context, *Client) (int, bool)) error { return errNone }

// Mounts does not exist on this system.
type Mounts struct{}

// WatchMounts returns nil.
func WatchMounts() *Mounts { return nil }

// Changed is not called.
func (*Mounts) Changed() bool { return true }
