package main

import "golang.org/x/sys/unix"

// isTmpfs reports whether a folder is on a file system in memory.
func isTmpfs(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.TMPFS_MAGIC
}
