//go:build amd64 || arm64

package notify

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// A process inside may enter a Landlock domain of its own: a nested cloche does.
// What the broker does for that process, and for all that it starts, has to stay within that
// domain too. So the broker keeps a thread in a domain made from the same rulesets, and lets
// that thread make the changes.
//
// The kernel does not say which domain a process is in, and its parents may be gone. So the
// broker marks a process that enters a domain, by a resource limit that the kernel has not
// used since Linux 2.4: RLIMIT_LOCKS. All processes that it starts inherit the limit, and none
// can raise it without a capability that no command has. A process whose limit is as high as
// at the start is in no domain. A process with a mark is in the domain of that mark if the
// process that entered it is still among its parents. Otherwise the broker does nothing for it:
// it may have lowered its limit to the mark of another domain.

// A domain is a thread of the broker that is as restricted as some processes are.
type domain struct {
	rulesets   []int
	work       chan func()
	privileged bool
	over       chan struct{} // closed when the domain is let go
	entered    int           // the process that entered it
}

// domains are those of a sandbox.
type domains struct {
	byMark map[uint64]*domain
	// unmarked is the limit of processes that are in no domain. The marks are below
	// it; last is the lowest.
	unmarked, last uint64
}

// maxDomains is how many there are at once. Each is a thread; those that no process is in
// are let go when there are as many.
const maxDomains = 256

// newDomain starts the thread. The rulesets belong to it.
func newDomain(rulesets []int, privileged bool) (*domain, error) {
	d := &domain{rulesets: rulesets, work: make(chan func()), over: make(chan struct{}), privileged: privileged}
	ready := make(chan error)
	go d.loop(ready)
	err := <-ready
	if err != nil {
		d.close()
	}
	return d, err
}

func (d *domain) loop(ready chan<- error) {
	runtime.LockOSThread() // for good: the thread ends with this
	if err := d.restrict(); err != nil {
		ready <- err
		return
	}
	close(ready)
	for {
		select {
		case f := <-d.work:
			f()
		case <-d.over:
			return
		}
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
	close(d.over)
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
	select {
	case c.domain.work <- func() {
		defer close(done)
		err = change()
	}:
		<-done
		return err
	case <-c.domain.over: // nobody waits for the change any more
		return unix.EACCES
	}
}

// enterDomain lets the process enter a domain, and prepares to act for it within that.
func (c *call) enterDomain(ruleset int32) error {
	if ruleset < 0 { // it only changes what is logged
		return errGoOn
	}
	fd, err := c.descriptor(ruleset)
	if err != nil {
		return err
	}
	rulesets := []int{fd}
	if c.domain != nil {
		rulesets = append(duplicates(c.domain.rulesets), fd)
	}
	d, err := newDomain(rulesets, c.b.privileged())
	if err != nil {
		return err
	}
	d.entered = c.status().tgid
	if err := c.mark(d); err != nil {
		d.close()
		return err
	}
	return errGoOn
}

// mark marks the process as one in the domain.
func (c *call) mark(d *domain) error {
	all := &c.b.domains
	limit, err := markOf(d.entered)
	if err != nil {
		return err
	}
	if all.byMark == nil {
		*all = domains{byMark: map[uint64]*domain{}, unmarked: limit, last: limit}
	}
	if len(all.byMark) >= maxDomains {
		c.forgetDomains()
	}
	mark := min(all.last, limit)
	if mark == 0 || len(all.byMark) >= maxDomains {
		return unix.E2BIG // as the kernel says to a process that has entered too many
	}
	mark--
	if err := unix.Prlimit(d.entered, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: mark, Max: mark}, nil); err != nil {
		return err
	}
	all.byMark[mark], all.last = d, mark
	return nil
}

func markOf(pid int) (uint64, error) {
	var limit unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit)
	return limit.Max, err
}

// forgetDomains lets go of domains that no process is in.
func (c *call) forgetDomains() {
	used := map[uint64]bool{}
	_, pids := c.processes()
	for _, pid := range pids {
		if mark, err := markOf(pid); err == nil {
			used[mark] = true
		}
	}
	for mark, d := range c.b.domains.byMark {
		if !used[mark] && len(pids) > 0 {
			d.close()
			delete(c.b.domains.byMark, mark)
		}
	}
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

// findDomain finds the domain that the process has inherited. It is false where that
// cannot be known.
func (c *call) findDomain() bool {
	if c.b.domains.byMark == nil {
		return true
	}
	mark, err := markOf(c.pid)
	if err != nil || mark >= c.b.domains.unmarked {
		return err == nil
	}
	c.domain = c.b.domains.byMark[mark]
	return c.domain != nil && descends(c.status().tgid, c.domain.entered)
}

// maxDepth bounds a walk up the tree of processes.
const maxDepth = 1000

// descends reports whether a process is another one or below it.
func descends(pid, from int) bool {
	for range maxDepth {
		if pid == from {
			return true
		}
		if pid = statusOf(pid).parent; pid <= 1 {
			return false
		}
	}
	return false
}
