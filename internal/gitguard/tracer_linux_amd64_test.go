package gitguard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A tracer is a broker for tests: it stops a tree of processes at each system
// call, judges those that change the workspace, and performs the verdict. It
// stands for the real broker in everything but safety: a process that changes
// a path while it is stopped could mislead it.
type tracer struct {
	root    string
	results map[int]int64 // by thread: what its system call is to return
	denied  []Verdict
	broken  error
}

// run executes argv in dir and returns its exit status and output.
func (t *tracer) run(argv []string, dir string) (status int, output string, err error) {
	onThread(func() { status, output, err = t.runHere(argv, dir) })
	return status, output, err
}

// onThread calls f on a thread of its own that has no children: a tracer waits for all
// of its thread's, and would take away those of tests that run beside it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		const look = unix.WEXITED | unix.WNOHANG | unix.WNOWAIT | unix.WALL | unix.WNOTHREAD
		if err := unix.Waitid(unix.P_ALL, 0, nil, look, nil); errors.Is(err, unix.ECHILD) {
			f()
		} else {
			onThread(f) // which is another one, while this one is held
		}
	}()
	<-done
}

func (t *tracer) runHere(argv []string, dir string) (status int, output string, err error) {
	out, err := os.CreateTemp("", "gitguard")
	if err != nil {
		return 0, "", err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, "", err
	}
	defer null.Close()
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Dir: dir, Files: []*os.File{null, out, out}, Sys: &syscall.SysProcAttr{Ptrace: true}})
	if err != nil {
		return 0, "", err
	}
	t.results = map[int]int64{}
	status, err = t.follow(p.Pid)
	text, _ := os.ReadFile(out.Name())
	return status, string(text), errors.Join(err, t.broken)
}

func (t *tracer) follow(main int) (status int, err error) {
	var ws unix.WaitStatus
	if _, err := unix.Wait4(main, &ws, unix.WALL, nil); err != nil {
		return 0, err
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(main, options); err != nil {
		return 0, err
	}
	pid, signal := main, 0
	for {
		// A process that has just been killed cannot be continued.
		if err := unix.PtraceSyscall(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return 0, err
		}
		for {
			pid, err = unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
			if errors.Is(err, unix.ECHILD) {
				return status, nil
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				return 0, err
			}
			if err == nil && ws.Stopped() {
				break
			}
			if err == nil && pid == main {
				status = ws.ExitStatus()
			}
		}
		signal = t.stopped(pid, ws)
	}
}

// stopped deals with one stop and returns the signal to deliver.
func (t *tracer) stopped(pid int, ws unix.WaitStatus) int {
	switch s := ws.StopSignal(); s {
	case unix.SIGTRAP | 0x80:
		if err := t.systemCall(pid); err != nil && !errors.Is(err, unix.ESRCH) {
			t.broken = errors.Join(t.broken, err)
		}
	case unix.SIGTRAP, unix.SIGSTOP:
	default:
		return int(s)
	}
	return 0
}

func (t *tracer) systemCall(pid int) error {
	var info struct {
		op   uint8
		_    [3]byte
		arch uint32
		_    [10]uint64
	}
	const getSyscallInfo = 0x420e
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, getSyscallInfo, uintptr(pid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
		return errno
	}
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(pid, &regs); err != nil {
		return err
	}
	if info.op == 2 {
		result, replaced := t.results[pid]
		if !replaced {
			return nil
		}
		delete(t.results, pid)
		regs.Rax = uint64(result)
		return syscall.PtraceSetRegs(pid, &regs)
	}
	c, is, err := t.change(pid, &regs)
	defer closePlaces(c)
	switch {
	case err != nil:
		return err
	case is:
		return t.perform(pid, c, &regs)
	case c.At.Dir == -1 && strings.HasPrefix(c.At.Path, filepath.Dir(t.root)+"/"):
		return t.replace(pid, &regs, -int64(unix.EROFS))
	}
	return nil
}

// perform does what the verdict says.
func (t *tracer) perform(pid int, c Change, regs *syscall.PtraceRegs) error {
	v := Judge(c)
	switch v.Action {
	case Refuse:
		t.denied = append(t.denied, v)
		return t.replace(pid, regs, -int64(unix.EACCES))
	case Allow:
		return v.Put()
	}
	if err := v.Put(); errors.Is(err, unix.EEXIST) {
		return t.replace(pid, regs, -int64(unix.EEXIST))
	} else if err != nil {
		return err
	}
	if c.Op == Create {
		regs.Orig_rax, regs.Rdi, regs.Rsi = unix.SYS_MEMFD_CREATE, regs.Rsp, 0
		return syscall.PtraceSetRegs(pid, regs)
	}
	if c.Op == Rename {
		if err := os.Remove(c.From.String()); err != nil {
			return err
		}
	}
	return t.replace(pid, regs, 0)
}

func (t *tracer) replace(pid int, regs *syscall.PtraceRegs, result int64) error {
	t.results[pid] = result
	regs.Orig_rax = ^uint64(0)
	return syscall.PtraceSetRegs(pid, regs)
}

// change reads the system call. It is none if it would fail anyway, or is
// about another folder.
func (t *tracer) change(pid int, regs *syscall.PtraceRegs) (c Change, is bool, err error) {
	cwd := int32(unix.AT_FDCWD)
	c.Root = t.root
	target := func(fd int32, path uint64, follow bool) (Place, bool) {
		p, inside, e := t.place(pid, fd, uintptr(path), follow)
		err = errors.Join(err, e)
		return p, inside
	}
	switch regs.Orig_rax {
	case unix.SYS_OPEN:
		return t.open(pid, cwd, regs.Rdi, int(regs.Rsi))
	case unix.SYS_CREAT:
		return t.open(pid, cwd, regs.Rdi, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC)
	case unix.SYS_OPENAT:
		return t.open(pid, int32(regs.Rdi), regs.Rsi, int(regs.Rdx))
	case unix.SYS_MKDIR:
		c.Op = Mkdir
		c.At, is = target(cwd, regs.Rdi, false)
	case unix.SYS_MKDIRAT:
		c.Op = Mkdir
		c.At, is = target(int32(regs.Rdi), regs.Rsi, false)
	case unix.SYS_SYMLINK:
		c.Op = Symlink
		c.At, is = target(cwd, regs.Rsi, false)
	case unix.SYS_SYMLINKAT:
		c.Op = Symlink
		c.At, is = target(int32(regs.Rsi), regs.Rdx, false)
	case unix.SYS_UNLINK, unix.SYS_RMDIR:
		c.Op = Remove
		c.At, is = target(cwd, regs.Rdi, false)
	case unix.SYS_UNLINKAT:
		c.Op = Remove
		c.At, is = target(int32(regs.Rdi), regs.Rsi, false)
	case unix.SYS_TRUNCATE:
		c.Op = Truncate
		c.At, is = target(cwd, regs.Rdi, true)
	case unix.SYS_RENAME:
		c.Op = Rename
		c.From, _ = target(cwd, regs.Rdi, false)
		c.At, is = target(cwd, regs.Rsi, false)
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		c.Op = Rename
		if regs.Orig_rax == unix.SYS_RENAMEAT2 {
			c.Exchange, c.NoReplace = regs.R8&unix.RENAME_EXCHANGE != 0, regs.R8&unix.RENAME_NOREPLACE != 0
		}
		c.From, _ = target(int32(regs.Rdi), regs.Rsi, false)
		c.At, is = target(int32(regs.Rdx), regs.R10, false)
	case unix.SYS_LINK:
		c.Op = Link
		c.From, _ = target(cwd, regs.Rdi, false)
		c.At, is = target(cwd, regs.Rsi, false)
	case unix.SYS_LINKAT:
		c.Op = Link
		c.From, _ = target(int32(regs.Rdi), regs.Rsi, false)
		c.At, is = target(int32(regs.Rdx), regs.R10, false)
	}
	return c, is && possible(c), err
}

// possible says whether the kernel would get as far as performing the change.
func possible(c Change) bool {
	exists := func(p Place) bool {
		_, err := os.Lstat(p.String())
		return p.Name != "" && err == nil
	}
	switch c.Op {
	case Rename:
		return exists(c.From) && !(c.NoReplace && exists(c.At))
	case Link:
		return exists(c.From) && !exists(c.At)
	case Mkdir, Symlink, Create:
		return !exists(c.At)
	}
	return exists(c.At)
}

func (t *tracer) open(pid int, fd int32, path uint64, flags int) (Change, bool, error) {
	c := Change{Root: t.root}
	writes := flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0
	if !writes && flags&unix.O_CREAT == 0 {
		return c, false, nil
	}
	follow := flags&unix.O_NOFOLLOW == 0 && flags&(unix.O_CREAT|unix.O_EXCL) != unix.O_CREAT|unix.O_EXCL
	p, inside, err := t.place(pid, fd, uintptr(path), follow)
	c.At, c.Op = p, Create
	if err != nil || !inside {
		return c, false, err
	}
	if _, err := os.Lstat(p.String()); err == nil {
		c.Op = Write
		return c, writes && flags&unix.O_EXCL == 0, nil
	}
	return c, flags&unix.O_CREAT != 0, nil
}

// place resolves a path of the process as the kernel would.
func (t *tracer) place(pid int, fd int32, address uintptr, follow bool) (Place, bool, error) {
	path, err := peekString(pid, address)
	if err != nil {
		return Place{}, false, err
	}
	if !filepath.IsAbs(path) {
		base := fmt.Sprintf("/proc/%d/cwd", pid)
		if fd != unix.AT_FDCWD {
			base = fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
		}
		base, err = os.Readlink(base)
		if err != nil {
			return Place{}, false, nil
		}
		path = base + "/" + path
	}
	path = strings.TrimRight(path, "/")
	for range 40 {
		dir, err := filepath.EvalSymlinks(path[:strings.LastIndexByte(path, '/')+1])
		name := path[strings.LastIndexByte(path, '/')+1:]
		if err != nil || name == "." || name == ".." || name == "" {
			return Place{}, false, nil
		}
		if to, err := os.Readlink(filepath.Join(dir, name)); err == nil && follow {
			path = to
			if !filepath.IsAbs(to) {
				path = dir + "/" + to
			}
			continue
		}
		if dir != t.root && !strings.HasPrefix(dir, t.root+"/") {
			return Place{Dir: -1, Path: dir, Name: name}, false, nil
		}
		opened, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return Place{Dir: opened, Path: dir, Name: name}, err == nil, err
	}
	return Place{}, false, nil
}

func closePlaces(c Change) {
	for _, p := range []Place{c.At, c.From} {
		if p.Name != "" && p.Dir >= 0 {
			unix.Close(p.Dir)
		}
	}
}

func peekString(pid int, address uintptr) (string, error) {
	var text []byte
	for len(text) < unix.PathMax {
		chunk := make([]byte, 64)
		n, err := unix.PtracePeekData(pid, address+uintptr(len(text)), chunk)
		if n == 0 && err != nil {
			return "", err
		}
		if end := bytes.IndexByte(chunk[:n], 0); end >= 0 {
			return string(append(text, chunk[:end]...)), nil
		}
		text = append(text, chunk[:n]...)
	}
	return "", unix.ENAMETOOLONG
}
