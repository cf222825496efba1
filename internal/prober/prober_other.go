//go:build !linux

package prober

// operations is empty: nothing is tried on this system.
func operations() Table { return nil }
