package supervise

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawner runs functions on one thread that never ends. The kernel sends the parent-death
// signal when the *thread* that forked ends, and the Go runtime may end threads at any time.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go spawnerThread(work)
	return work
})

func spawnerThread(work <-chan func()) {
	runtime.LockOSThread()
	for f := range work {
		f()
	}
}

// start starts the launch's program with these descriptors.
func start(spec *Spec, files []*os.File) (proc *os.Process, err error) {
	attr, err := sysProcAttr(spec)
	if err != nil {
		return nil, err
	}
	l := spec.Launch
	done := make(chan struct{})
	run := func() {
		defer close(done)
		if l.SealNodes {
			if err = sealNodes(); err != nil {
				return
			}
		}
		proc, err = os.StartProcess(program(l), l.Argv, &os.ProcAttr{
			Dir: l.Dir, Env: append([]string{}, l.Env...), Files: closeInherited(files), Sys: attr,
		})
	}
	if l.SealNodes {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with this function
			run()
		}()
	} else {
		spawner() <- run
	}
	<-done
	return proc, err
}

// sealNodes gives the calling thread, and what it starts, a mount namespace in which the
// device nodes of every sandbox are on read-only mounts. The devices can be used there, but
// their mode and owner cannot be changed. It needs root.
func sealNodes() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace for read-only device nodes: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts of device nodes from the host: %w", err)
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		node := "/dev/" + name
		var fs unix.Statfs_t
		if err := unix.Statfs(node, &fs); errors.Is(err, unix.ENOENT) {
			continue
		}
		const kept = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
		err := unix.Mount(node, node, "", unix.MS_BIND, "")
		if err == nil {
			err = unix.Mount("", node, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|uintptr(fs.Flags)&kept, "")
		}
		if err != nil {
			return fmt.Errorf("mount %s read-only: %w", node, err)
		}
	}
	return nil
}

func sysProcAttr(spec *Spec) (attr *syscall.SysProcAttr, err error) {
	attr = &syscall.SysProcAttr{Setsid: true}
	if !spec.Launch.Init {
		attr.Pdeathsig = syscall.SIGKILL
		attr.Setctty = spec.Terminal // of descriptor 0
	}
	if !spec.Launch.MapRoot {
		return attr, nil
	}
	return attr, mapIdentity(attr)
}

// mapIdentity requests a user namespace where every id is mapped to itself.
func mapIdentity(attr *syscall.SysProcAttr) (err error) {
	attr.Cloneflags |= unix.CLONE_NEWUSER
	attr.GidMappingsEnableSetgroups = true
	if attr.UidMappings, err = identity("/proc/self/uid_map"); err != nil {
		return err
	}
	attr.GidMappings, err = identity("/proc/self/gid_map")
	return err
}

// identity returns a map of every id that exists in this process's user namespace to itself.
// path is the kernel's map of that namespace.
func identity(path string) ([]syscall.SysProcIDMap, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var maps []syscall.SysProcIDMap
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var inside, outside, size int
		if _, err := fmt.Sscan(lines.Text(), &inside, &outside, &size); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, lines.Text(), err)
		}
		maps = append(maps, syscall.SysProcIDMap{ContainerID: inside, HostID: inside, Size: size})
	}
	if len(maps) == 0 {
		return nil, fmt.Errorf("%s is empty: no id is mapped here", path)
	}
	return maps, nil
}

// closeInherited appends nil files, which are closed in the child, up to the highest
// descriptor that this process has without close-on-exec. Other code in this process may have
// opened such descriptors, and the child would inherit them.
//
// A descriptor that is opened between this and the fork is missed; an init closes those too.
func closeInherited(files []*os.File) []*os.File {
	last := len(files) - 1
	for _, fd := range openDescriptors() {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			last = max(last, fd)
		}
	}
	return append(files, make([]*os.File, last+1-len(files))...)
}

func openDescriptors() (fds []int) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if fd, err := strconv.Atoi(strings.TrimSpace(name)); err == nil {
			fds = append(fds, fd)
		}
	}
	return fds
}
