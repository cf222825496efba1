//go:build unix

package hostfs

import (
	"io/fs"
	"syscall"
)

// Owner returns the user id of a file, or -1 if it is not known.
func Owner(fi fs.FileInfo) int {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
