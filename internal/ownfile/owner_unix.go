//go:build unix

package ownfile

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openNonblock prevents the open of a FIFO from waiting for a writer.
const openNonblock = syscall.O_NONBLOCK

// ForeignOwner returns the owner of a file that belongs neither to the user nor to
// root, or "".
func ForeignOwner(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "its owner is unknown"
	}
	if uid := int(st.Uid); uid != os.Geteuid() && uid != 0 {
		return fmt.Sprintf("it belongs to another user (uid %d)", uid)
	}
	return ""
}

// Own reports whether a file belongs to the user of this process. A file of root does
// not, unless root is the user.
func Own(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// SameDevice reports whether two files are on one file system.
func SameDevice(a, b fs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, also := b.Sys().(*syscall.Stat_t)
	return ok && also && x.Dev == y.Dev
}

// WorldWritable reports whether everybody may write a file.
func WorldWritable(info fs.FileInfo) bool { return info.Mode().Perm()&0o002 != 0 }

// syncFolder writes a rename in the folder to the disk.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
