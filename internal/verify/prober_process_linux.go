package verify

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// tryProcess looks at this process and at others.
func (p prober) tryProcess(a attempt) (answer, bool) {
	switch a.Do {
	case "variable":
		value, ok := os.LookupEnv(string(a.Path))
		if !ok {
			return answer{Errno: unix.ENOENT}, true
		}
		return answer{Data: digest(p.token, []byte(value))}, true
	case "variables":
		return answer{Names: variableNames()}, true
	case "limit":
		var l unix.Rlimit
		err := unix.Getrlimit(int(a.N), &l)
		got := failed(err)
		got.N = int64(l.Max)
		return got, true
	case "started":
		if start := startTime(int(a.N)); start != nil {
			return answer{Data: start}, true
		}
		return answer{Errno: unix.ENOENT}, true
	case "signal":
		got := failed(unix.Kill(int(a.N), 0))
		got.Ino = pidNamespace()
		return got, true
	}
	return answer{}, false
}

// variableNames are those of this process, and of every other whose environment
// can be read.
func variableNames() [][]byte {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	all := []byte(strings.Join(os.Environ(), "\x00"))
	for _, f := range files {
		if data, err := os.ReadFile(f); err == nil {
			all = append(append(all, 0), data...)
		}
	}
	seen := map[string]bool{}
	var names [][]byte
	for entry := range bytes.SplitSeq(all, []byte{0}) {
		name, _, ok := bytes.Cut(entry, []byte{'='})
		if ok && !seen[string(name)] {
			seen[string(name)] = true
			names = append(names, name)
		}
	}
	return names
}

// startTime is when a process started, as the kernel counts: together with its
// number it names a process for good. It is nil where the process cannot be seen.
func startTime(pid int) []byte {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	// The name, in parentheses, may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const afterName = 19 // the 22nd field of all
	if len(fields) <= afterName {
		return nil
	}
	return fields[afterName]
}

// pidNamespace is the identity of this process's pid namespace; 0 is unknown.
func pidNamespace() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
}

// tryKernel makes calls that a filter has to refuse. Each has an argument that
// makes it fail, in a way of its own, where nothing refuses it.
func (p prober) tryKernel(a attempt) (answer, bool) {
	switch a.Do {
	case "capabilities":
		return capabilities(), true
	case "no-new-privs":
		return control(unix.PR_GET_NO_NEW_PRIVS), true
	case "seccomp":
		return control(unix.PR_GET_SECCOMP), true
	case "clone":
		return clone(uintptr(a.N)), true
	case "mount":
		return failed(unix.Mount("none", "/", "cloche-no-such-type", 0, "")), true
	case "umount":
		return failed(unix.Unmount("/proc/self/task", 0)), true
	case "type":
		return failed(unix.IoctlSetPointerInt(0, unix.TIOCSTI, 'x')), true
	case "keyring":
		_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, false)
		return failed(err), true
	case "shm":
		_, err := unix.SysvShmGet(int(a.N), 0, 0)
		return failed(err), true
	}
	return answer{}, false
}

func control(option int) answer {
	n, err := unix.PrctlRetInt(option, 0, 0, 0, 0)
	got := failed(err)
	got.N = int64(n)
	return got
}

// capabilities are those of any set but the bounding one.
func capabilities() answer {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	got := failed(unix.Capget(&header, &data[0]))
	for i, d := range data {
		got.N |= int64(d.Effective|d.Permitted|d.Inheritable) << (32 * i)
	}
	return got
}

// clone makes a process in new namespaces that executes a program which is not
// there: that error means that the kernel made them. A process of several
// threads cannot be moved into a user namespace, so the call has to be this one.
func clone(flags uintptr) answer {
	pid, err := syscall.ForkExec("/cloche-no-such-program", []string{"x"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: flags}})
	if err == nil {
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}
	return failed(err)
}
