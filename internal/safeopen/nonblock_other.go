//go:build !unix

package safeopen

// openNonblock is not needed: there are no FIFOs in the file system.
const openNonblock = 0
