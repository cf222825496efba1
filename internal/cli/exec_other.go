//go:build !unix

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// replaceProcess runs a program and ends with its status: this system cannot put
// it in the place of this one.
func replaceProcess(path string, args []string) error {
	cmd := exec.Command(path, args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return statusError(exit.ExitCode())
	}
	if err != nil {
		return fmt.Errorf("execute %s: %w", path, err)
	}
	return nil
}
