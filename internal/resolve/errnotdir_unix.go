//go:build unix

package resolve

import "syscall"

// errNotDir is what looking below a file answers: the path does not exist.
var errNotDir error = syscall.ENOTDIR
