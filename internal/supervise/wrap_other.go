//go:build !linux

package supervise

import (
	"os"
	"os/exec"
)

// Wrap rewrites a command so that it runs the launch when the caller starts it.
// Only launches for Linux need more than another program.
func Wrap(c *exec.Cmd, spec Spec, _ *os.File, name string) error {
	l := spec.Launch
	if l.Init || l.MapRoot || len(l.Files) > 0 {
		return &SetupError{Backend: l.Backend, Step: "start the launcher", Detail: "this launch needs Linux"}
	}
	if err := prepare(l); err != nil {
		return err
	}
	c.Path, c.Args, c.Env = program(l), append([]string{name}, l.Argv[1:]...), l.Env
	return nil
}
