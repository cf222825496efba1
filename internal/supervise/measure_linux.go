package supervise

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// usage is what a process tree uses at one moment.
type usage struct {
	memory int64 // bytes
	tasks  int64 // processes and threads
}

// measure adds up the usage of a tree. With skipRoot, the root is an init of cloche and does
// not count. Memory is only added up on demand, because the kernel takes longer for it than
// for everything else.
func measure(root int, skipRoot, memory bool) (u usage) {
	walk([]int{root}, func(pid, _, tasks int) {
		if pid != root || !skipRoot {
			u.add(pid, tasks, memory)
		}
	})
	return u
}

func (u *usage) add(pid, tasks int, memory bool) {
	u.tasks += int64(tasks)
	if memory {
		u.memory += memoryOf(pid)
	}
}

// walk calls f for the given processes and all their descendants. parent is 0 for the given
// ones. tasks is the number of threads.
func walk(pids []int, f func(pid, parent, tasks int)) {
	parents := map[int]int{}
	for _, pid := range pids {
		parents[pid] = 0
	}
	seen := map[int]bool{}
	for len(pids) > 0 {
		pid := pids[len(pids)-1]
		pids = pids[:len(pids)-1]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		folder := "/proc/" + strconv.Itoa(pid) + "/task"
		tasks := entries(folder)
		f(pid, parents[pid], len(tasks))
		for _, task := range tasks {
			for _, below := range childrenOf(folder + "/" + task) {
				if !seen[below] {
					parents[below] = pid
					pids = append(pids, below)
				}
			}
		}
	}
}

// childrenOf returns the children of one thread. The kernel has the file if it
// was built with CONFIG_PROC_CHILDREN, which distributions do.
func childrenOf(task string) (pids []int) { return parsePIDs(readProc(task + "/children")) }

// parsePIDs parses a list of pids.
func parsePIDs(b []byte) (pids []int) {
	for f := range bytes.FieldsSeq(b) {
		if pid, err := strconv.Atoi(string(f)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// memoryOf returns the anonymous and shared memory of a process in bytes. Both can be read for
// a process of another user and for one that is not dumpable.
func memoryOf(pid int) (n int64) {
	for line := range bytes.Lines(readProc("/proc/" + strconv.Itoa(pid) + "/status")) {
		name, value, _ := strings.Cut(string(line), ":")
		if name == "RssAnon" || name == "RssShmem" {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			n += kb << 10
		}
	}
	return n
}

// readProc reads a file of /proc, and returns nil if that fails. It is os.ReadFile without the
// runtime's poller: registering the file there is useless and takes longer than the rest, and
// the measured command may be waiting for the processor.
func readProc(name string) []byte {
	fd := openProc(name, 0)
	if fd < 0 {
		return nil
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 2048)
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil: // the process is gone
			return nil
		case n == 0:
			return b
		}
		b = slices.Grow(b[:len(b)+n], 1)
	}
}

// entries returns the names in a folder of /proc, or nil if it cannot be read.
func entries(name string) (names []string) {
	fd := openProc(name, unix.O_DIRECTORY)
	if fd < 0 {
		return nil
	}
	defer unix.Close(fd)
	var buf [4096]byte
	for {
		n, err := unix.ReadDirent(fd, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return names
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}

// openProc opens a file of /proc for reading, and returns -1 if that fails.
func openProc(name string, flags int) int {
	for {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
		if err == nil {
			return fd
		}
		if err != unix.EINTR {
			return -1
		}
	}
}

// sampled returns the limits that the kernel does not enforce for this run.
func (p *Process) sampled() limits {
	l := limits{p.spec.Memory, p.spec.Processes}
	if p.child.hasInit && !p.child.adopts && os.Getuid() != 0 {
		l.processes = -1 // RLIMIT_NPROC, set by the init
	}
	return l
}

// sample compares the run's usage with its limits, once the command runs.
func (p *Process) sample(l limits) {
	if p.child.statusFD < 0 && !p.child.started() {
		return // the processes may still be the launcher's
	}
	u := p.child.measure(l.memory >= 0)
	if l.memory >= 0 && u.memory > l.memory {
		p.exceed("memory")
	} else if l.processes >= 0 && u.tasks > l.processes {
		p.exceed("processes")
	}
}

// measure adds up the usage of the run's tree.
func (c *child) measure(memory bool) (u usage) {
	if c.tag == 0 {
		pid, isInit := c.root()
		return measure(pid, isInit, memory)
	}
	for _, pid := range c.tagged() {
		u.add(pid, len(entries("/proc/"+strconv.Itoa(pid)+"/task")), memory)
	}
	return u
}

// root returns the process at the root of the measured tree.
func (c *child) root() (pid int, isInit bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pid1 != 0 {
		return c.pid1, true
	}
	return c.proc.Pid, false
}
