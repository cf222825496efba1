package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/internal/sysprog"
)

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
	network := startNetwork(spec, d.takeNetwork(), false)
	proc, err := sysprog.Run(ctx, l.Program, o)
	if err != nil {
		d.closeOurs()
		if missing := network.end(); missing != nil {
			return nil, networkError(spec, missing)
		}
		return nil, stepError(l, o.Texts, err)
	}
	c, err := programChild(spec, proc, d)
	if err != nil {
		_ = network.end()
		return nil, err
	}
	c.network = network
	c.startGuard(spec, d)
	c.attach(spec, d)
	return c, nil
}

// programChild is the child that a program has made. Where it cannot be held, it
// is let go: it ends with its lifeline.
func programChild(spec *Spec, proc *sysprog.Process, d *descriptors) (*child, error) {
	p, err := os.FindProcess(proc.Pid)
	if err != nil {
		d.closeOurs()
		proc.Release()
		return nil, &SetupError{Backend: spec.Launch.Backend, Step: "hold the process", Err: err}
	}
	c := newChild(p, spec.Launch, d)
	c.forker = proc
	return c, nil
}

// attach connects a child that was just started with what it reports. Its reports
// are read when they are needed, unless they tell of stops, which matter at a
// terminal and have to be read when they come, or come from an init that has to
// be asked to end.
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

// stepError tells a path that is no longer what the plan says from a sandbox
// that cannot be made. The texts are those of the run.
func stepError(l *backend.Launch, texts []string, err error) error {
	var step *sysprog.StepError
	if errors.As(err, &step) && isGone(err) {
		if path := pathOf(step.Step, texts); path != "" {
			return &ChangedError{Path: path, Err: err, Origin: step.Step.Origin}
		}
	}
	return &SetupError{Backend: l.Backend, Step: "make the sandbox", Err: err}
}

// isGone reports whether an error says that a path is not what it was.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR)
}

// pathOf is the path that a step is about.
func pathOf(s sysprog.Step, texts []string) string {
	if s.Call == "move_mount" {
		return s.Label // it takes descriptors: what the last one leads to was replaced since
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

// programFile is the file in memory of the last program asked for. There is one
// program, the init, and making the file anew would cost each run more than its
// mounts do.
var programFile struct {
	sync.Mutex
	content []byte
	file    *os.File
}

// openProgram returns a descriptor that can be executed and not be written, not
// even by its owner. A file that is open for writing cannot be executed, so the
// one that filled it is closed, and it is opened anew.
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
	fd, err := unix.FcntlInt(programFile.file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), "program"), nil
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
	fd, err := unix.MemfdCreate("cloche-init", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err == unix.EINVAL { // Linux before 6.3
		fd, err = unix.MemfdCreate("cloche-init", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, content); err != nil {
		return nil, fmt.Errorf("fill the init's file: %w", err)
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal the init's file: %w", err)
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}
