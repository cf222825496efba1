//go:build amd64 || arm64

package notify

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A change is judged by the state that the broker sees, and made a moment later. Two
// sandboxes can share a directory, each with a broker of its own: while one judges
// a file in `.git/h2`, the other could rename that to `.git/hooks`. So each broker
// holds a lock while it judges and makes a change. Changes whose verdict depends on a
// name alone share it. Renames, which change the names of all that is in a directory,
// and changes that mean something to git, whose verdict depends on other files, hold
// it alone.
//
// There is one lock for all sandboxes of a user: workspaces may lie in each other, or
// be one directory under two names. It is a file in cloche's state directory, which no
// sandbox shows. Sandboxes of different users have different locks.

// lockPatience is how long a change waits for the lock. A cloche that was stopped keeps
// what it holds.
const lockPatience = 5 * time.Second

// A changeLock is the lock, as one broker has it. Its zero value is not open.
type changeLock struct {
	opened bool
	fd     int
}

func (l *changeLock) take(path string, alone bool) error {
	if err := l.open(path); err != nil {
		return err
	}
	how := unix.LOCK_SH
	if alone {
		how = unix.LOCK_EX
	}
	end := time.Time{}
	for {
		err := unix.Flock(l.fd, how|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case err != unix.EWOULDBLOCK && err != unix.EINTR:
			return fmt.Errorf("the lock %s: %w", path, err)
		case end.IsZero():
			end = time.Now().Add(lockPatience)
		case time.Now().After(end):
			return fmt.Errorf("another cloche holds the lock %s and does not go on; continue it or end it", path)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func (l *changeLock) open(path string) error {
	if l.opened {
		return nil
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("there is no state directory for the lock; set HOME or XDG_STATE_HOME")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("%w; make it writable, or set XDG_STATE_HOME", err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open %s: %w; make it writable, or set XDG_STATE_HOME", path, err)
	}
	l.fd, l.opened = fd, true
	return nil
}

func (l *changeLock) release() { _ = unix.Flock(l.fd, unix.LOCK_UN) }

func (l *changeLock) close() {
	if l.opened {
		unix.Close(l.fd)
	}
}

// locked handles a call while it holds the lock. Waits of any length are none of its
// business: a FIFO is opened, and a person asked, after handle has returned.
func (c *call) locked(handle func()) {
	if c.b.config.Lock == "" || !c.changes() {
		handle()
		return
	}
	for {
		if err := c.b.lock.take(c.b.config.Lock, c.alone); err != nil {
			c.refuseUnlocked(err)
			return
		}
		c.again = false
		handle()
		c.b.lock.release()
		if !c.again {
			return
		}
		c.alone = true
	}
}

// changes reports whether the call may change a file.
func (c *call) changes() bool {
	switch c.nr {
	case unix.SYS_CONNECT, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_LANDLOCK_RESTRICT_SELF, unix.SYS_UMASK:
		return false
	case unix.SYS_OPENAT:
		return c.args[2]&writeIntent != 0
	}
	return true
}

// needsAlone reports whether the call has to be handled again, from the start, with no
// other broker making changes: the caller then returns without an answer.
func (c *call) needsAlone() bool {
	c.again = c.b.config.Lock != "" && !c.alone
	return c.again
}

// refuseUnlocked refuses a change that cannot be made under the lock.
func (c *call) refuseUnlocked(err error) {
	c.record(plan.OpWrite, c.b.config.Lock, plan.Verdict{
		Access: policy.Read, Rule: "paths.protect", Reason: "changes are judged under a lock: " + err.Error(), At: c.b.config.Lock,
		Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: changes of several sandboxes"},
	})
	c.fail(unix.EBUSY)
}
