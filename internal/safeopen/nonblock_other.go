//go:build !unix

package safeopen

// openNonblock is nothing where no FIFO lives in the file system.
const openNonblock = 0
