//go:build !linux

package network

// readable lets every read try: no sandbox has a network of its own here.
func readable(uintptr) bool { return true }
