//go:build !linux

package sysprog

// lastCapability returns the highest possible one: programs cannot run here.
func lastCapability() int { return highestCapability }
