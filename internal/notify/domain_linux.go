//go:build amd64 || arm64

package notify

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A process inside may enter a Landlock domain of its own: a nested cloche does.
// What the broker does for it, and for all that it starts, has to stay within
// that domain too. So the broker keeps a thread in a domain made from the same
// rulesets, and lets that thread make the changes.

// A domain is a thread of the broker that is as restricted as some processes are.
type domain struct {
	rulesets   []int
	work       chan func()
	privileged bool
}

// enterDomain starts the thread. The rulesets belong to it.
func enterDomain(rulesets []int, privileged bool) (*domain, error) {
	d := &domain{rulesets: rulesets, work: make(chan func()), privileged: privileged}
	ready := make(chan error)
	go d.loop(ready)
	return d, <-ready
}

func (d *domain) loop(ready chan<- error) {
	runtime.LockOSThread() // for good: the thread ends with this
	if err := d.restrict(); err != nil {
		ready <- err
		return
	}
	close(ready)
	for f := range d.work {
		f()
	}
}

func (d *domain) restrict() error {
	if err := isolateThread(d.privileged); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	for _, fd := range d.rulesets {
		if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(fd), 0, 0); e != 0 {
			return e
		}
	}
	return nil
}

func (d *domain) close() {
	close(d.work)
	for _, fd := range d.rulesets {
		unix.Close(fd)
	}
}

// as makes a change with the rights of the process that asked for it.
func (c *call) as(change func() error) error {
	if c.domain == nil {
		return change()
	}
	var err error
	done := make(chan struct{})
	c.domain.work <- func() {
		defer close(done)
		err = change()
	}
	<-done
	return err
}

// opens is as for a change that gives a descriptor.
func (c *call) opens(open func() (int, error)) (fd int, err error) {
	err = c.as(func() error {
		var err error
		fd, err = open()
		return err
	})
	return fd, err
}

// restricted notes that the process is about to enter a domain, and lets it.
func (c *call) restricted(ruleset int32) {
	if ruleset < 0 { // it only changes what is logged
		c.resume()
		return
	}
	if err := c.follow(ruleset); err != nil {
		c.failWith(err)
		return
	}
	c.resume()
}

func (c *call) follow(ruleset int32) error {
	pid := c.status().tgid
	held, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(held)
	fd, err := unix.PidfdGetfd(held, int(ruleset), 0)
	if err != nil {
		return err
	}
	rulesets := []int{fd}
	if c.domain != nil {
		rulesets = append(duplicates(c.domain.rulesets), fd)
	}
	d, err := enterDomain(rulesets, c.b.privileged())
	if err != nil {
		return err
	}
	if c.b.domains == nil {
		c.b.domains = map[int]*domain{}
		c.b.main = c.ancestorBelowInit(pid)
	}
	if old := c.b.domains[pid]; old != nil {
		old.close()
	}
	c.b.domains[pid] = d
	return nil
}

func duplicates(fds []int) []int {
	var out []int
	for _, fd := range fds {
		if n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// findDomain finds the domain that the process has inherited. It is false for a
// process whose parents are gone: what it has inherited cannot be known.
func (c *call) findDomain() bool {
	if len(c.b.domains) == 0 {
		return true
	}
	pid := c.status().tgid
	for range maxDepth {
		if d := c.b.domains[pid]; d != nil {
			c.domain = d
			return true
		}
		s := statusOf(pid)
		if s.parent == os.Getpid() || pid == c.b.main {
			return true
		}
		if s.parent <= 1 || s.inside == 1 {
			return false
		}
		pid = s.parent
	}
	return false
}

// maxDepth bounds a walk up the tree of processes.
const maxDepth = 1000

// ancestorBelowInit is the process of the chain above pid that the sandbox's
// first process has started: the command itself.
func (c *call) ancestorBelowInit(pid int) int {
	for range maxDepth {
		s := statusOf(pid)
		if s.parent == os.Getpid() || s.parent <= 1 || statusOf(s.parent).inside == 1 {
			return pid
		}
		pid = s.parent
	}
	return pid
}

// A status is what /proc says of a process: the numbers of its thread group and
// of its parent, and its own number in the innermost pid namespace.
type status struct{ tgid, parent, inside int }

func (c *call) status() status { return statusOf(c.pid) }

func statusOf(pid int) status {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return status{}
	}
	return status{tgid: lastNumber(b, "\nTgid:"), parent: lastNumber(b, "\nPPid:"), inside: lastNumber(b, "\nNStgid:")}
}

func lastNumber(text []byte, key string) int {
	_, rest, _ := bytes.Cut(text, []byte(key))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(fields[len(fields)-1])
	return n
}
