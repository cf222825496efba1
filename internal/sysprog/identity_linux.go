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

// MapIdentity maps every user and group id of this user namespace to itself in
// that of the process, which needs CAP_SETUID and CAP_SETGID here. It is for
// Options.SyncParent: a process can map no id but its own in its own namespace.
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

// ownMaps are the maps of our own user namespace as identities. A process with
// threads cannot change its user namespace, so they stay.
var ownMaps = [2]func() (string, error){
	sync.OnceValues(func() (string, error) { return identity("/proc/self/uid_map") }),
	sync.OnceValues(func() (string, error) { return identity("/proc/self/gid_map") }),
}

// identity turns the ranges of our own map into ones from and to themselves.
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

// writeOnce writes with the one write that the files of /proc take. The child
// waits meanwhile, and package os would try to poll the file first, which takes
// five more system calls.
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

// keepDumpable returns the function that sets the flag as it was, when no other
// run is left that may clear it.
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
	// Only the plain state can be set again; 2 is the kernel's to set.
	if dumpable.runs == 0 && dumpable.flag == 1 && now != 1 {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) // 1 is always allowed
	}
}
