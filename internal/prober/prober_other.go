//go:build !linux

package prober

// operations is empty: nothing can be tried on this system.
func operations() Table { return nil }
