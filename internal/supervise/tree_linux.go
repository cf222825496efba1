package supervise

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A stat is the part of /proc/PID/stat that tells who belongs to whom.
type stat struct {
	pid, parent, group, session int
	state                       byte
}

// alive reports whether the process still runs: a zombie is only waiting to be
// looked at.
func (s stat) alive() bool { return s.state != 'Z' && s.state != 'X' }

func readStat(pid int) (s stat, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, err
	}
	// The name, in parentheses, may hold anything, parentheses included.
	i := bytes.LastIndexByte(b, ')')
	s.pid = pid
	_, err = fmt.Sscanf(string(b[i+1:]), " %c %d %d %d", &s.state, &s.parent, &s.group, &s.session)
	return s, err
}

func parentOf(pid int) int {
	s, err := readStat(pid)
	if err != nil {
		return 0
	}
	return s.parent
}

// allProcesses reads the stat of every process.
func allProcesses() (all []stat) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		if s, err := readStat(pid); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// killSession kills the processes of a launch with no init: those of its
// session, of its process group, and all that descend from them.
func (c *child) killSession() { c.killRounds(map[int]bool{c.proc.Pid: true}, 0) }

// killAdopted kills everything below an init that does not do so itself, and
// not the init: as long as it is there, nothing leaves its tree.
func (c *child) killAdopted() { c.killRounds(map[int]bool{c.proc.Pid: true}, c.proc.Pid) }

// killOrphans kills what an init that was itself killed left in its session.
// The init's number may mean another process by now, unless its session lives.
func (c *child) killOrphans() { c.killRounds(map[int]bool{}, 0) }

// killLeft kills what a launch with no init has left, when the run was to be ended
// and its first process has ended by itself meanwhile: by the end of a pipe, for
// instance, before anybody got to kill it.
func (c *child) killLeft() {
	if !c.hasInit && c.tag == 0 {
		c.killOrphans()
	}
}

func (c *child) killRounds(known map[int]bool, spare int) {
	c.killing.Lock()
	defer c.killing.Unlock()
	for end := time.Now().Add(launcherGrace); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if !c.killRound(known, spare) {
			return
		}
	}
}

// killRound kills every process that belongs to one that is known, adding it
// to them, and reports whether any was alive. Orphans keep their session, so a
// process is found again after its parent is gone.
func (c *child) killRound(known map[int]bool, spare int) (any bool) {
	leader := c.proc.Pid
	all := allProcesses()
	for grown := true; grown; {
		grown = false
		for _, s := range all {
			if !known[s.pid] && (s.session == leader || s.group == leader || known[s.parent]) {
				known[s.pid], grown = true, true
			}
		}
	}
	for _, s := range all {
		if known[s.pid] && s.pid != spare && s.alive() {
			any = true
			_ = unix.Kill(s.pid, unix.SIGKILL)
		}
	}
	return any
}

// usage is what a tree uses at one moment.
type usage struct {
	memory int64 // bytes
	tasks  int64 // processes and threads
}

// measure adds up a tree, leaving out the process at its root if that is an
// init of ours.
func measure(root int, skipRoot bool) (u usage) {
	walk([]int{root}, func(pid int, tasks []string) {
		if pid != root || !skipRoot {
			u.add(pid, tasks)
		}
	})
	return u
}

func (u *usage) add(pid int, tasks []string) {
	u.tasks += int64(len(tasks))
	u.memory += memoryOf(pid)
}

// walk calls the function for each process, with the folders of its threads, and
// then for all below it.
func walk(pids []int, f func(pid int, tasks []string)) {
	seen := map[int]bool{}
	for len(pids) > 0 {
		pid := pids[len(pids)-1]
		pids = pids[:len(pids)-1]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", pid))
		f(pid, tasks)
		for _, task := range tasks {
			pids = append(pids, childrenOf(task)...)
		}
	}
}

// childrenOf returns the children of one thread. The kernel has the file if it
// was built with CONFIG_PROC_CHILDREN, which distributions do.
func childrenOf(task string) (pids []int) {
	b, _ := os.ReadFile(task + "/children")
	return parsePIDs(b)
}

// parsePIDs reads a list of numbers.
func parsePIDs(b []byte) (pids []int) {
	for _, f := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// memoryOf returns the anonymous and shared memory of a process in bytes. Both
// can be read of a process of another user or one that is not dumpable.
func memoryOf(pid int) (n int64) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		if name == "RssAnon" || name == "RssShmem" {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			n += kb << 10
		}
	}
	return n
}

const sampleEvery = 100 * time.Millisecond

// sample watches the limits that the kernel does not keep for us, until the
// function that it returns is called. The first look is after some time.
func (p *Process) sample(first time.Duration) (stop func()) {
	processes := p.spec.Processes
	if p.child.hasInit && !p.child.adopts && os.Getuid() != 0 {
		processes = -1 // RLIMIT_NPROC, set by the init
	}
	if p.spec.Memory < 0 && processes < 0 {
		return func() {}
	}
	s := &sampler{look: func() {
		if p.untold || p.child.started() {
			p.compare(p.child.measure(), processes)
		}
	}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(first, s.tick)
	return s.stop
}

// A sampler looks again and again.
type sampler struct {
	look    func()
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func (s *sampler) tick() {
	s.look()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.timer.Reset(sampleEvery)
	}
}

func (s *sampler) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.timer.Stop()
}

func (p *Process) compare(u usage, processes int64) {
	if p.spec.Memory >= 0 && u.memory > p.spec.Memory {
		p.exceed("memory")
	} else if processes >= 0 && u.tasks > processes {
		p.exceed("processes")
	}
}

// measure adds up the run's tree.
func (c *child) measure() (u usage) {
	if c.tag == 0 {
		return measure(c.root())
	}
	for _, pid := range c.tagged() {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", pid))
		u.add(pid, tasks)
	}
	return u
}

// root is the process that the tree is measured from.
func (c *child) root() (pid int, isInit bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pid1 != 0 {
		return c.pid1, true
	}
	return c.proc.Pid, false
}
