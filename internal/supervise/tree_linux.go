package supervise

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A stat is the part of /proc/PID/stat that relates processes to each other.
type stat struct {
	pid, parent, group, session int
	state                       byte
}

// alive reports whether the process still runs. A zombie has ended and only waits to be
// reaped.
func (s stat) alive() bool { return s.state != 'Z' && s.state != 'X' }

func readStat(pid int) (s stat, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, err
	}
	// The name is in parentheses and may contain anything, even parentheses.
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

// killSession kills the processes of a launch without an init: those in its session, in its
// process group, and all their descendants.
func (c *child) killSession() { c.killRounds(map[int]bool{c.proc.Pid: true}, 0) }

// killAdopted kills everything below an init that does not do so itself. It does not kill the
// init: while that lives, no process leaves its tree.
func (c *child) killAdopted() { c.killRounds(map[int]bool{c.proc.Pid: true}, c.proc.Pid) }

// killOrphans kills what a killed init left in its session. The init itself is not in the set,
// because its pid may have been reused, unless its session still exists.
func (c *child) killOrphans() { c.killRounds(map[int]bool{}, 0) }

// killLeft kills what a launch without an init has left. It is for a run that was being ended
// when its first process ended by itself, for example because a pipe was closed.
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

// killRound kills every process that belongs to a known one, adds it to the known ones, and
// reports whether any was alive. Orphans keep their session, so a process is found even after
// its parent has ended.
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
