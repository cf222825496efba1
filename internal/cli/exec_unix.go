//go:build unix

package cli

import (
	"fmt"
	"os"
	"syscall"
)

// replaceProcess executes a program in the place of this one. It returns only if
// it could not.
func replaceProcess(path string, args []string) error {
	return fmt.Errorf("execute %s: %w", path, syscall.Exec(path, args, os.Environ()))
}
