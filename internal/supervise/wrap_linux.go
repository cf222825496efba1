package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"github.com/cloche-dev/cloche/backend"
)

// Open opens the descriptors of a launch that the caller starts by itself: in
// the order of their numbers, with nobody listening to what is reported, and
// with the given lifeline. The garbage collector closes them.
func Open(l *backend.Launch, lifeline *os.File) ([]*os.File, error) {
	if err := prepare(l); err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range l.Files {
		f, err := openUnwatched(&l.Files[i], lifeline)
		if err != nil {
			closeAll(slices.DeleteFunc(files, func(f *os.File) bool { return f == lifeline }))
			return nil, asSetupError(l, "open the descriptors", err)
		}
		files = append(files, f)
	}
	return files, nil
}

func openUnwatched(f *backend.File, lifeline *os.File) (*os.File, error) {
	switch f.Kind {
	case backend.Source:
		return openSource(f)
	case backend.Data:
		return openData(f.Data)
	case backend.Program:
		return openProgram(f.Data)
	case backend.BwrapStatus, backend.InitStatus:
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	case backend.Lifeline:
		return lifeline, nil
	}
	return nil, errors.New("a descriptor of unknown kind")
}

// MapRoot sets up the user namespace of a launch that the caller starts by
// itself, beside whatever else its SysProcAttr asks for.
func MapRoot(c *exec.Cmd, l *backend.Launch) error {
	if !l.MapRoot {
		return nil
	}
	attr := syscall.SysProcAttr{}
	if c.SysProcAttr != nil {
		attr = *c.SysProcAttr
	}
	if attr.Cloneflags&syscall.CLONE_NEWUSER != 0 || attr.UidMappings != nil || attr.GidMappings != nil {
		return fmt.Errorf("SysProcAttr asks for a user namespace, and backend %s makes one of its own; leave it out", l.Backend)
	}
	c.SysProcAttr = &attr
	return mapIdentity(&attr)
}
