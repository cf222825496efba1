package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/builtin"
)

// Wrap rewrites a command so that it runs the launch of the spec when the caller
// starts it; limits and streams of the spec do not count. The launch's own
// descriptors come behind the extra files of the caller's; the garbage collector
// closes them. The sandbox ends with the lifeline, a pipe whose other end only we
// hold. name is what the command is called in Args[0].
//
// A launch of system calls is run by cloche's launcher, a static program in
// memory: see [wrapping]. Any other one executes what it says.
func Wrap(c *exec.Cmd, spec Spec, lifeline *os.File, name string) error {
	l := spec.Launch
	if err := prepare(l); err != nil {
		return err
	}
	if i := slices.Index(c.ExtraFiles, nil); i >= 0 {
		return fmt.Errorf("ExtraFiles[%d] is nil; every extra file has to be open", i)
	}
	if l.Program != nil {
		return wrapProgram(c, &spec, lifeline, name)
	}
	watch, err := newBwrapWatch(name)
	if err != nil {
		return asSetupError(l, "open the descriptors", err)
	}
	var files []*os.File
	defer watch.begin()
	for i := range l.Files {
		f, err := watch.file(&l.Files[i])
		if f == nil && err == nil {
			f, err = openUnwatched(&spec, &l.Files[i], lifeline)
		}
		if err != nil {
			closeAll(files)
			return asSetupError(l, "open the descriptors", err)
		}
		files = append(files, f)
	}
	// bwrap has a reading end of its own reports: without one, the end of the caller
	// would kill it by SIGPIPE before it lets its child go on, which waits then.
	reader, err := duplicate(watch.reports)
	if err != nil {
		closeAll(files)
		return asSetupError(l, "open the descriptors", err)
	}
	files = append(files, reader)
	if err := mapRoot(c, l); err != nil {
		closeAll(files)
		return err
	}
	c.Path, c.Args, c.Env = program(l), append([]string{name}, l.Argv[1:]...), l.Env
	c.ExtraFiles = append(c.ExtraFiles, files...)
	return nil
}

// openUnwatched opens a descriptor of a launch that the caller starts by itself.
// The init's reports are not among them.
func openUnwatched(spec *Spec, f *backend.File, lifeline *os.File) (*os.File, error) {
	switch f.Kind {
	case backend.Source:
		return openSource(f)
	case backend.Data:
		return openData(f.Data)
	case builtin.Program:
		return openProgram(f.Data)
	case builtin.Lifeline:
		return duplicate(lifeline)
	case builtin.Listener:
		return guardWrapped(spec)
	case builtin.NetworkHandover:
		return networkWrapped(spec)
	}
	return nil, errors.New("a descriptor of a kind that a wrapped command cannot have")
}

// guardWrapped waits for the listener of a wrapped command, and holds its rules
// until its last process is gone. If the command is never started, the wait ends
// when it is collected, and with it the other end of the socket.
func guardWrapped(spec *Spec) (*os.File, error) {
	ours, theirs, err := listenerPair()
	if err != nil {
		return nil, err
	}
	g := guardAt(ours, spec)
	if g.err != nil {
		theirs.Close()
		return nil, g.err
	}
	go func() {
		<-g.broker.Done()
		denied, more, _ := g.end() // a command that never ran says so itself
		g.free()
		if spec.Refused != nil {
			spec.Refused(denied, more)
		}
	}()
	return theirs, nil
}

// duplicate makes a file that stays open when the other one is closed: a command
// that is started after the end of its session has to find that out.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// mapRoot sets up the user namespace of a launch that the caller starts by
// itself, beside whatever else its SysProcAttr asks for.
func mapRoot(c *exec.Cmd, l *backend.Launch) error {
	if !l.MapRoot {
		return nil
	}
	attr := syscall.SysProcAttr{}
	if c.SysProcAttr != nil {
		attr = *c.SysProcAttr
	}
	if makesUserNamespace(&attr) {
		return conflict("a user namespace", l)
	}
	c.SysProcAttr = &attr
	return mapIdentity(&attr)
}

func makesUserNamespace(attr *syscall.SysProcAttr) bool {
	return attr.Cloneflags&unix.CLONE_NEWUSER != 0 || attr.UidMappings != nil || attr.GidMappings != nil
}

func conflict(what string, l *backend.Launch) error {
	return fmt.Errorf("SysProcAttr asks for %s, which does not go together with the sandbox that backend %s makes; leave it out", what, l.Backend)
}
