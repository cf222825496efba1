//go:build unix

package safeopen

import "syscall"

// openNonblock keeps the opening of a FIFO, put in place of the file that was
// seen, from waiting for its other end.
const openNonblock = syscall.O_NONBLOCK
