//go:build !linux

package machine

import "os"

// slurp reads a small file of the system.
func slurp(name string) ([]byte, error) { return os.ReadFile(name) }
