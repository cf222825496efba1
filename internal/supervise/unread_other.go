//go:build !linux

package supervise

import "os"

// An unread is for systems that can tell how much is left in a pipe.
type unread struct{ copied chan int64 }

func newUnread(_, _ *os.File) *unread { return nil }

func (*unread) giveBack() {}

func (*unread) close() {}
