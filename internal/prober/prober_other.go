//go:build !linux

package prober

// operations is empty: nothing is tried on this system.
var operations Table
