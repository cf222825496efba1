package supervise

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawner runs functions on one thread that never ends. The kernel sends the
// parent-death signal when the *thread* that forked ends, and the Go runtime
// ends threads whenever it likes.
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
	spawner() <- func() {
		defer close(done)
		proc, err = os.StartProcess(program(l), l.Argv, &os.ProcAttr{
			Dir: l.Dir, Env: append([]string{}, l.Env...), Files: closeInherited(files), Sys: attr,
		})
	}
	<-done
	return proc, err
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

// mapIdentity asks for a user namespace where every id is itself.
func mapIdentity(attr *syscall.SysProcAttr) (err error) {
	attr.Cloneflags |= unix.CLONE_NEWUSER
	attr.GidMappingsEnableSetgroups = true
	if attr.UidMappings, err = identity("/proc/self/uid_map"); err != nil {
		return err
	}
	attr.GidMappings, err = identity("/proc/self/gid_map")
	return err
}

// identity maps every id that exists in our own user namespace, as the map
// there says, to itself.
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

// closeInherited adds a nil, which is closed in the child, for every number up
// to the last descriptor that this process holds without close-on-exec. Code
// that we share the process with may have opened such descriptors, and the
// child would inherit them.
//
// One that is opened between this and the fork is not seen; an init closes
// those too.
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
