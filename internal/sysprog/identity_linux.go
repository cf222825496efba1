//go:build amd64 || arm64

package sysprog

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// MapIdentity maps every user and group id of this user namespace to itself in
// that of the process, which needs CAP_SETUID and CAP_SETGID here. It is for
// Options.SyncParent: a process can map no id but its own in its own namespace.
func MapIdentity(pid int) error {
	for _, name := range []string{"uid_map", "gid_map"} {
		ids, err := identity("/proc/self/" + name)
		if err != nil {
			return err
		}
		if err := writeOnce(fmt.Sprintf("/proc/%d/%s", pid, name), ids); err != nil {
			return err
		}
	}
	return nil
}

// identity turns the ranges of our own map into ones from and to themselves.
func identity(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var ids strings.Builder
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var inside, outside, size uint32
		if _, err := fmt.Sscan(lines.Text(), &inside, &outside, &size); err != nil {
			return "", fmt.Errorf("%s: %q: %w", path, lines.Text(), err)
		}
		fmt.Fprintf(&ids, "%d %d %d\n", inside, inside, size)
	}
	return ids.String(), lines.Err()
}

// writeOnce writes with the one write that the files of /proc take.
func writeOnce(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
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
