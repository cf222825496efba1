//go:build !unix

package ownfile

import "io/fs"

// openNonblock is nothing here: there are no FIFOs in the file system.
const openNonblock = 0

// ForeignOwner and WorldWritable have no answer here: owners and modes are
// access control lists, which the folders of a user's profile inherit.
func ForeignOwner(fs.FileInfo) string { return "" }

// Own is always true here: owners are not known.
func Own(fs.FileInfo) bool { return true }

// SameDevice is always true here.
func SameDevice(_, _ fs.FileInfo) bool { return true }

// WorldWritable is never true here.
func WorldWritable(fs.FileInfo) bool { return false }

// syncFolder is nothing here: folders cannot be opened for a sync.
func syncFolder(string) error { return nil }
