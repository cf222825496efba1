package main

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"
)

// isTmpfs reports whether a folder is on a file system in memory.
func isTmpfs(dir string) bool { return fileSystem(dir) == "tmpfs" }

// fileSystem names the kind of file system that a folder is on.
func fileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	names := map[int64]string{
		unix.TMPFS_MAGIC: "tmpfs", unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs",
		unix.BTRFS_SUPER_MAGIC: "btrfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
	}
	return cmp.Or(names[st.Type], fmt.Sprintf("of type %#x", st.Type))
}
