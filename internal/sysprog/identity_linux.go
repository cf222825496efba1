//go:build amd64 || arm64

package sysprog

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// MapIdentity maps every user and group id of this user namespace to itself in that of the
// process. It needs CAP_SETUID and CAP_SETGID. It is for Options.SyncParent, because a process
// can only map its own id in its own namespace.
func MapIdentity(pid int) error {
	for i, name := range []string{"uid_map", "gid_map"} {
		ids, err := ownMaps[i]()
		if err != nil {
			return err
		}
		if err := writeOnce("/proc/"+strconv.Itoa(pid)+"/"+name, ids); err != nil {
			return err
		}
	}
	return nil
}

// ownMaps are identity maps for this process's user namespace. They do not change, because a
// process with threads cannot change its user namespace.
var ownMaps = [2]func() (string, error){
	sync.OnceValues(func() (string, error) { return identity("/proc/self/uid_map") }),
	sync.OnceValues(func() (string, error) { return identity("/proc/self/gid_map") }),
}

// identity returns a map of the ranges in this process's own map to themselves.
func identity(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var ids strings.Builder
	for line := range strings.Lines(string(text)) {
		var inside, outside, size uint32
		if _, err := fmt.Sscan(line, &inside, &outside, &size); err != nil {
			return "", fmt.Errorf("%s: %q: %w", path, line, err)
		}
		fmt.Fprintf(&ids, "%d %d %d\n", inside, inside, size)
	}
	return ids.String(), nil
}

// writeOnce writes in a single call, as the files of /proc require. It does not use package
// os, which would try to poll the file first and make five more system calls, while the child
// waits.
func writeOnce(path, text string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if _, err = unix.Write(fd, []byte(text)); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// dumpable remembers the "dumpable" flag while programs run that may clear it.
var dumpable struct {
	sync.Mutex
	runs int
	flag int
}

// keepDumpable returns a function that restores the flag when no other run is left that may
// clear it.
func keepDumpable() func() {
	dumpable.Lock()
	defer dumpable.Unlock()
	if dumpable.runs++; dumpable.runs == 1 {
		dumpable.flag, _ = unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	}
	return restoreDumpable
}

func restoreDumpable() {
	dumpable.Lock()
	defer dumpable.Unlock()
	dumpable.runs--
	now, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	// Only the value 1 can be restored; 2 can only be set by the kernel.
	if dumpable.runs == 0 && dumpable.flag == 1 && now != 1 {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) // 1 is always allowed
	}
}
