//go:build !linux && !darwin

package machine

// kernelFacts returns nothing: no backend confines anything on this system.
func kernelFacts() (release string, memory int64) { return "", 0 }
