//go:build unix

package resolve

import "syscall"

// errNotDir is the error for a path below a file: the path does not exist.
var errNotDir error = syscall.ENOTDIR
