//go:build !linux

package supervise

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
)

// Wrap rewrites a command so that it runs the launch when the caller starts it.
// Its folder for temporary files is removed when nobody has the command any more,
// or by the system.
func Wrap(c *exec.Cmd, spec Spec, _ *os.File, name string) error {
	l := spec.Launch
	if l.Init || l.MapRoot || l.Program != nil {
		return &SetupError{Backend: l.Backend, Step: "start the launcher", Detail: "this launch needs Linux"}
	}
	if err := prepare(l); err != nil {
		return err
	}
	tmp, err := newPrivateTmp(l)
	if err != nil {
		return err
	}
	argv, env := tmp.tell(l)
	for range l.Files { // nobody waits for what the program says
		null, err := openNull(os.O_WRONLY)
		if err != nil {
			return &SetupError{Backend: l.Backend, Step: "open the null device", Err: errors.Join(err, tmp.remove())}
		}
		c.ExtraFiles = append(c.ExtraFiles, null)
	}
	c.Path, c.Args, c.Env = program(l), append([]string{name}, argv[1:]...), env
	runtime.AddCleanup(c, func(t privateTmp) { _ = t.remove() }, tmp)
	return nil
}
