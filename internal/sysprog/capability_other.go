//go:build !linux

package sysprog

// lastCapability is the highest that can be: programs are only looked at here.
func lastCapability() int { return highestCapability }
