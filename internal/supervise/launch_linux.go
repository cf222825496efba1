package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/builtin"
)

// descriptors are the files of one launch: those for the child, in the order of
// their numbers, and our ends of the pipes.
type descriptors struct {
	child                   []*os.File
	spare                   []*os.File // further ones for the child, after all others
	bwrap, status, lifeline *os.File
	// rawStatus is our end of the pipe for the status of a child that system calls
	// have made, and rawEnd the child's where no file has it; or -1.
	rawStatus, rawEnd int
	// direct: the status pipe is to be a raw one.
	direct bool
	// listener is our end of the socket for the filter's listener, or 0; network
	// that of the socket for the network namespace.
	listener, network int
}

func (d *descriptors) closeChilds() {
	closeAll(d.child)
	closeAll(d.spare)
	if d.rawEnd > 0 {
		unix.Close(d.rawEnd)
	}
	d.child, d.spare, d.rawEnd = nil, nil, -1
}

func (d *descriptors) closeOurs() {
	for _, f := range []*os.File{d.bwrap, d.status, d.lifeline} {
		if f != nil {
			f.Close()
		}
	}
	if d.rawStatus > 0 {
		unix.Close(d.rawStatus)
	}
	for _, fd := range []int{d.listener, d.network} {
		if fd > 0 {
			unix.Close(fd)
		}
	}
	d.rawStatus, d.listener, d.network = -1, 0, 0
}

// takeNetwork gives our end of the socket for the network to somebody else.
func (d *descriptors) takeNetwork() int {
	fd := d.network
	d.network = 0
	return fd
}

// openAll opens the files of a launch.
func openAll(l *backend.Launch) (d *descriptors, err error) {
	d = &descriptors{rawStatus: -1, rawEnd: -1, direct: l.Program != nil}
	for i := range l.Files {
		f, err := d.open(&l.Files[i])
		if err != nil {
			d.closeChilds()
			d.closeOurs()
			return nil, err
		}
		d.child = append(d.child, f)
	}
	return d, nil
}

func (d *descriptors) open(f *backend.File) (childs *os.File, err error) {
	switch f.Kind {
	case backend.Source:
		return openSource(f)
	case backend.Data:
		return openData(f.Data)
	case builtin.Program:
		return openProgram(f.Data)
	case builtin.BwrapStatus:
		if d.bwrap, childs, err = pipeFromChild(); err != nil {
			return nil, err
		}
		return childs, d.keepReader()
	case builtin.InitStatus:
		if d.direct {
			d.rawStatus, childs, err = rawPipeFromChild()
		} else {
			d.status, childs, err = pipeFromChild()
		}
		return childs, err
	case builtin.Lifeline:
		childs, d.lifeline, err = pipeToChild()
		return childs, err
	case builtin.Listener:
		d.listener, childs, err = listenerPair()
		return childs, err
	case builtin.NetworkHandover:
		d.network, childs, err = handoverPair()
		return childs, err
	}
	return nil, errors.New("a descriptor of unknown kind")
}

// keepReader gives bwrap the reading end of its status pipe too. If we are
// killed before it reports, the report would otherwise end it by SIGPIPE, just
// before it lets its child go on, and the child would wait for ever. Its child,
// the init, closes the descriptor.
func (d *descriptors) keepReader() error {
	raw, err := d.bwrap.SyscallConn()
	if err != nil {
		return err
	}
	fd := -1
	if cerr := raw.Control(func(orig uintptr) {
		fd, err = unix.FcntlInt(orig, unix.F_DUPFD_CLOEXEC, 3)
	}); cerr != nil {
		return cerr
	}
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	d.spare = append(d.spare, os.NewFile(uintptr(fd), "pipe"))
	return nil
}

// launch starts the program of the spec with these standard descriptors.
func launch(ctx context.Context, spec *Spec, std [3]*os.File) (*child, error) {
	if spec.Parked != nil {
		return enter(ctx, spec, std)
	}
	l := spec.Launch
	if err := prepare(l); err != nil {
		return nil, err
	}
	d, err := openAll(l)
	if err != nil {
		return nil, asSetupError(l, "open the descriptors", err)
	}
	defer d.closeChilds()
	if l.Init && d.status == nil && d.rawStatus < 0 {
		d.closeOurs()
		return nil, &SetupError{Backend: l.Backend, Step: "start the launcher", Detail: "the launch has an init and no status descriptor"}
	}
	files := slices.Concat(std[:], spec.ExtraFiles, d.child, d.spare)
	if l.Program != nil {
		return launchProgram(ctx, spec, files, d)
	}
	proc, err := start(spec, files)
	if err != nil {
		d.closeOurs()
		return nil, launchError(spec, err)
	}
	c := newChild(proc, l, d)
	c.network = startNetwork(spec, d.takeNetwork(), false)
	c.startGuard(spec, d)
	c.follow(l, d)
	return c, nil
}

// prepare makes the folders of cloche's store and looks whether what the
// launch covers is still there.
func prepare(l *backend.Launch) error {
	for _, dir := range l.CreateDirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return asSetupError(l, "make a folder of the store", err)
		}
	}
	return mustExist(l)
}

func asSetupError(l *backend.Launch, step string, err error) error {
	if changed := (*ChangedError)(nil); errors.As(err, &changed) {
		return err
	}
	return &SetupError{Backend: l.Backend, Step: step, Err: err}
}

// launchError tells a command that cannot be executed from a launcher that
// cannot.
func launchError(spec *Spec, err error) error {
	var path *os.PathError
	var errno syscall.Errno
	if !spec.Launch.Init && errors.As(err, &path) && path.Op == "fork/exec" && errors.As(err, &errno) {
		return &ExecError{Path: path.Path, Errno: errno}
	}
	return &SetupError{Backend: spec.Launch.Backend, Step: "start " + filepath.Base(spec.Launch.Argv[0]), Err: err}
}

func newChild(proc *os.Process, l *backend.Launch, d *descriptors) *child {
	return &child{
		proc: proc, hasInit: l.Init, adopts: l.Adopts, pidfd: -1, statusFD: -1, mounts: -1, lifeline: d.lifeline,
		settled: make(chan struct{}), done: make(chan struct{}),
		changes: make(chan syscall.Signal, 16),
	}
}

// follow listens to what was started.
func (c *child) follow(l *backend.Launch, d *descriptors) {
	known := make(chan struct{})
	if d.bwrap != nil {
		c.readers.Add(1)
		go c.readBwrap(d.bwrap, known)
	} else {
		if l.Init {
			c.setPid1(c.proc.Pid)
		}
		close(known)
	}
	if d.status != nil {
		c.readers.Add(1)
		go c.readInit(d.status, known)
	} else {
		c.report.started = true
		close(c.settled)
	}
}
