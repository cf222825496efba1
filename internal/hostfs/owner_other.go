//go:build !unix

package hostfs

import "io/fs"

// Owner returns the user id of a file, or -1 if it is not known.
func Owner(fs.FileInfo) int { return -1 }
