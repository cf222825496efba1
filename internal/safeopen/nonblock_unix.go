//go:build unix

package safeopen

import "syscall"

// openNonblock prevents open from blocking if the file was replaced by a FIFO after the check.
const openNonblock = syscall.O_NONBLOCK
