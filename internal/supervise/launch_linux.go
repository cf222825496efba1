package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/internal/sysprog"
)

// descriptors are the files of one launch: those for the child, in the order of their numbers,
// and the supervisor's ends of the pipes.
type descriptors struct {
	child                   []*os.File
	spare                   []*os.File // further files for the child, after all others
	bwrap, status, lifeline *os.File
	// rawStatus is the supervisor's end of the status pipe of a child that was started by a
	// list of system calls, or -1.
	rawStatus int
	// direct: use rawStatus for the status pipe, not status.
	direct bool
	// listener is the supervisor's end of the socket for the filter's listener, network that
	// of the socket for the network namespace; 0 means none.
	listener, network int
}

func (d *descriptors) closeChilds() {
	closeAll(d.child)
	closeAll(d.spare)
	d.child, d.spare = nil, nil
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

// takeNetwork returns the network socket. The caller then owns it.
func (d *descriptors) takeNetwork() int {
	fd := d.network
	d.network = 0
	return fd
}

// openAll opens the files of a launch.
func openAll(l *backend.Launch) (d *descriptors, err error) {
	d = &descriptors{rawStatus: -1, direct: l.Program != nil}
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
		d.listener, childs, err = socketPair(unix.SOCK_SEQPACKET)
		return childs, err
	case builtin.NetworkHandover:
		d.network, childs, err = handoverPair()
		return childs, err
	}
	return nil, errors.New("a descriptor of unknown kind")
}

// keepReader gives bwrap the reading end of its status pipe too. Otherwise, if the supervisor
// is killed before bwrap reports, bwrap would die of SIGPIPE just before it lets its child
// continue, and the child would wait forever. The child, the init, closes the descriptor.
func (d *descriptors) keepReader() error {
	reader, err := duplicate(d.bwrap)
	if err == nil {
		d.spare = append(d.spare, reader)
	}
	return err
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
	c.guard = guardFor(spec, d)
	c.follow(l, d)
	return c, nil
}

// prepare creates the folders of cloche's store and checks whether the paths that the launch
// mounts something on still exist.
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

// launchError distinguishes a command that cannot be executed from a launcher that cannot.
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

// follow starts to read the reports of the child.
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

// launchProgram runs the launch's system calls in a new process.
func launchProgram(ctx context.Context, spec *Spec, files []*os.File, d *descriptors) (*child, error) {
	l := spec.Launch
	o := sysprog.Options{CloneFlags: l.Namespaces, Env: l.Env, Ahead: spec.Ahead}
	if l.MapRoot {
		o.SyncParent = func(c *sysprog.Child) error { return sysprog.MapIdentity(c.Pid) }
	}
	for _, f := range files {
		o.Files = append(o.Files, int(f.Fd()))
	}
	if spec.Terminal && len(l.Program.Texts) > 0 {
		o.Texts = []string{terminalName(files[0])}
	}
	image, err := sysprog.Load(l.Program)
	if err != nil {
		d.closeOurs()
		return nil, stepError(l, nil, err)
	}
	return runImage(ctx, spec, image, o, d)
}

// runImage runs a program that makes the command's sandbox, or enters one.
func runImage(ctx context.Context, spec *Spec, image *sysprog.Image, o sysprog.Options, d *descriptors) (*child, error) {
	network, g := startNetwork(spec, d.takeNetwork(), false), guardFor(spec, d)
	proc, err := image.Run(ctx, o)
	var c *child
	if err == nil {
		c, err = programChild(spec, proc, d)
	}
	if err != nil {
		d.closeOurs()
		d.closeChilds() // the guard waits for a listener until the other end of its socket is closed
		_, _, _ = g.end()
		g.free()
		if missing := network.end(); missing != nil {
			return nil, networkError(spec, missing)
		}
		return nil, runError(spec, o.Texts, err)
	}
	c.guard, c.network, c.parked, c.tag = g, network, spec.Parked, proc.Inode()
	c.attach(spec, d)
	return c, nil
}

// programChild returns the child that a program has started. If os.FindProcess fails, the
// child is released: it ends when the caller closes its lifeline.
func programChild(spec *Spec, proc *sysprog.Process, d *descriptors) (*child, error) {
	p, err := os.FindProcess(proc.Pid)
	if err != nil {
		proc.Release()
		return nil, fmt.Errorf("hold the process: %w", err)
	}
	c := newChild(p, spec.Launch, d)
	c.forker = proc
	return c, nil
}

// attach connects a new child with its reports. They are read on demand, with two exceptions:
// at a terminal, reports about stops have to be read when they arrive, and so do those of an
// init that adopts orphans.
func (c *child) attach(spec *Spec, d *descriptors) {
	l := spec.Launch
	if l.Awaits && !l.Init {
		c.statusFD = d.rawStatus
		return
	}
	if l.Init && !l.Adopts {
		c.holdMounts()
	}
	if l.Init && !l.Adopts && !spec.Terminal {
		c.pid1, c.pidfd, c.statusFD = c.proc.Pid, c.forker.PidFD(), d.rawStatus
		return
	}
	if d.rawStatus >= 0 {
		_ = unix.SetNonblock(d.rawStatus, true)
		d.status = os.NewFile(uintptr(d.rawStatus), "pipe")
	}
	c.follow(l, d)
}

// stepError distinguishes a path that has changed since the plan was made from a sandbox that
// cannot be made. texts are the run's texts.
func stepError(l *backend.Launch, texts []string, err error) error {
	var step *sysprog.StepError
	if errors.As(err, &step) && isGone(err) {
		if path := pathOf(step.Step, texts); path != "" {
			return &ChangedError{Path: path, Err: err, Origin: step.Step.Origin}
		}
	}
	return &SetupError{Backend: l.Backend, Step: "make the sandbox", Err: err}
}

// isGone reports whether an error says that a path is missing or was replaced.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR)
}

// pathOf returns the path that a step is about.
func pathOf(s sysprog.Step, texts []string) string {
	if s.Call == "move_mount" {
		return s.Label // its arguments are descriptors; the file of the last one was replaced since
	}
	for _, a := range s.Args {
		if a.Kind == sysprog.KindText && a.Value < uint64(len(texts)) {
			return texts[a.Value]
		}
		if a.Kind == sysprog.KindString && a.Text != "" {
			return a.Text
		}
	}
	return ""
}

// programFile is the memory file of the most recent program. There is only one program, the
// init, and making the file for each run would cost more than the run's mounts.
var programFile struct {
	sync.Mutex
	content []byte
	file    *os.File
}

// openProgram returns a descriptor that can be executed but not written, not even by its
// owner. A file that is open for writing cannot be executed, so the writing descriptor is
// closed and the file is opened again.
func openProgram(content []byte) (*os.File, error) {
	programFile.Lock()
	defer programFile.Unlock()
	if programFile.file == nil || &programFile.content[0] != &content[0] {
		f, err := makeProgram(content)
		if err != nil {
			return nil, err
		}
		programFile.content, programFile.file = content, f
	}
	return duplicate(programFile.file)
}

// openInit returns a descriptor of the init.
func openInit() (*os.File, error) {
	elf, err := initprog.Binary()
	if err != nil {
		return nil, err
	}
	return openProgram(elf)
}

func makeProgram(content []byte) (*os.File, error) {
	fd, err := memoryFile("cloche-init", content, unix.MFD_EXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}
