//go:build !linux

package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/builtin"
)

// A readiness is how a launched program says that the sandbox is made: one byte
// on a pipe (builtin.Ready). What it prints and how it exits say nothing, for the
// command could do the same.
type readiness struct {
	ours, childs *os.File // nil: the launch says nothing, what was started runs
	said         bool
}

// newReadiness makes the pipe of a launch that has one.
func newReadiness(l *backend.Launch) (*readiness, error) {
	for _, f := range l.Files {
		if f.Kind != builtin.Ready || len(l.Files) > 1 {
			return nil, &SetupError{Backend: l.Backend, Step: "start the launcher", Detail: "this launch needs Linux"}
		}
	}
	if len(l.Files) == 0 {
		return &readiness{}, nil
	}
	ours, childs, err := os.Pipe()
	if err != nil {
		return nil, &SetupError{Backend: l.Backend, Step: "make a pipe", Err: err}
	}
	return &readiness{ours: ours, childs: childs}, nil
}

// files are the descriptors of the launch, behind the command's own.
func (r *readiness) files() []*os.File {
	if r.childs == nil {
		return nil
	}
	return []*os.File{r.childs}
}

// wait waits for the byte, or for the end of all who could write it.
func (r *readiness) wait() {
	if r.ours == nil {
		r.said = true
		return
	}
	n, _ := r.ours.Read(make([]byte, 1))
	r.said = n == 1
	_ = r.ours.Close()
}

// closeChilds closes our copy of the end that the program writes to.
func (r *readiness) closeChilds() {
	if r.childs != nil {
		_ = r.childs.Close()
	}
}

// abort closes both ends, where nothing was started.
func (r *readiness) abort() {
	r.closeChilds()
	if r.ours != nil {
		_ = r.ours.Close()
	}
}

// A privateTmp is the folder for temporary files of one run.
type privateTmp struct{ dir string }

// newPrivateTmp makes the folder of a launch that has one, among the caller's own
// temporary files, and returns its path as the kernel names it: a profile knows
// no links.
func newPrivateTmp(l *backend.Launch) (privateTmp, error) {
	if l.PrivateTmp == "" {
		return privateTmp{}, nil
	}
	dir, err := os.MkdirTemp("", "cloche-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return privateTmp{}, &SetupError{Backend: l.Backend, Step: "make a folder for temporary files", Err: err}
	}
	return privateTmp{dir}, nil
}

// tell adds the folder to what the program is told.
func (t privateTmp) tell(l *backend.Launch) (argv, env []string) {
	argv, env = l.Argv, append([]string{}, l.Env...)
	if t.dir == "" {
		return argv, env
	}
	argv = append([]string{argv[0], "-D", l.PrivateTmp + "=" + t.dir}, argv[1:]...)
	for _, kv := range env {
		if strings.HasPrefix(kv, "TMPDIR=") {
			return argv, env
		}
	}
	return argv, append(env, "TMPDIR="+t.dir)
}

// remove removes the folder. It follows no link that the command left in it.
func (t privateTmp) remove() error {
	if t.dir == "" {
		return nil
	}
	return os.RemoveAll(t.dir)
}

// notMade is the error of a program that ended before it said that the sandbox
// is made. The codes are those of sandbox-exec.
func notMade(l *backend.Launch, state *os.ProcessState) error {
	e := &SetupError{Backend: l.Backend, Step: "enter the sandbox"}
	switch {
	case state == nil:
		e.Err = errors.New("the launcher is gone")
	case state.ExitCode() == 65:
		e.Detail = "macOS does not read the profile; cloche explain --sbpl prints it"
	case state.ExitCode() == 71:
		e.Detail = "macOS does not apply the profile: a process that is in a sandbox already cannot enter another one"
	default:
		e.Detail = fmt.Sprintf("%s ended before the command: %s", filepath.Base(l.Argv[0]), state)
	}
	return e
}
