//go:build amd64 || arm64

package notify

import (
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// What a mask hides is denied by the kernel and looks like something that is not there. To
// record such attempts, the broker looks at the names of opens for reading, which the kernel
// then runs, and of changes that lead nowhere. The record depends on a name that another
// thread could change; the denial does not.
//
// Another goroutine finds out, on the host, whether the rule was the reason: a file that does
// not exist or that the user may not read is no denial of ours. If the command had to wait for
// that, the time would tell what is behind the mask.

const (
	// maxAttempts bounds for how many different attempts the process is looked up.
	maxAttempts = 1000
	// maxFolders bounds how many directories are remembered.
	maxFolders = 4096
	// patience is how long a call, and the end of a run, wait for a file system of the host
	// that does not answer.
	patience = 2 * time.Second
)

// attempts are what a broker knows of attempts at hidden files. The zero value is ready.
type attempts struct {
	mu     sync.Mutex
	queue  chan plan.Denial
	done   chan struct{} // closed when the queue is empty after its end
	ended  bool
	looked map[attempt]bool
	// folders are the real paths of directories in which the command can change nothing.
	folders map[string]string
}

type attempt struct {
	op   plan.Op
	path string
}

// observe notes an open for reading, or the execution of a program, and lets the kernel run
// it, unless it is of a program that a pattern hides.
func (c *call) observe(op plan.Op, dirfd int32, address uint64) error {
	mayDeny, masks := op == plan.OpExec && c.b.config.Reads, c.b.config.Masks
	if !mayDeny && masks == nil {
		return errGoOn
	}
	text, err := c.pathText(address)
	if err != nil {
		return errGoOn
	}
	p, err := c.pathname(dirfd, text)
	if err != nil || p.full == "" {
		return errGoOn
	}
	if mayDeny && c.openRoot() == nil {
		if err := c.denyHiddenProgram(p.full); err != nil {
			return err
		}
	}
	if masks == nil {
		return errGoOn
	}
	// The process has to be identified while it waits: it may have ended a moment later. Most
	// names are not hidden, and need few look-ups or none.
	_, _, hidden := masks().Path(path.Clean(p.full))
	if (hidden || !masks().ShowsProgram(p.full)) && c.openRoot() == nil {
		c.noteAttempt(op, p.full)
	}
	return errGoOn
}

// denyHiddenProgram denies to execute a program that a pattern hides. The kernel reads the
// name again, and another thread can change it until then, or execute a descriptor: this is
// against accidents, and the documentation says so.
func (c *call) denyHiddenProgram(full string) error {
	real, err := c.b.meaning(full)
	if err != nil {
		return nil //nolint:nilerr // the kernel does not find it either
	}
	if v, hidden := c.b.hidesByPattern(real); hidden {
		return c.deny(plan.OpExec, real, v)
	}
	return nil
}

// hidesByPattern reports whether a pattern hides a path, and its verdict. What a line of the
// plan hides is a mask, with nothing in it but what other lines show.
func (b *Broker) hidesByPattern(path string) (plan.Decision, bool) {
	v := b.config.Judge().Path(path)
	if v.Access != policy.Hidden {
		return v, false
	}
	return v, b.config.Plan == nil || b.config.Plan.Access(path) != policy.Hidden
}

// noteAttempt notes an attempt at an absolute path, if a line of the plan hides it.
func (c *call) noteAttempt(op plan.Op, full string) {
	if c.b.config.Masks == nil || full == "" {
		return
	}
	all := &c.b.attempts
	all.mu.Lock()
	defer all.mu.Unlock()
	v, real, hidden := c.b.config.Masks().Path(c.b.likelyPath(full))
	if !hidden || all.ended {
		return
	}
	v.Op, v.Path = op, real
	d := plan.Denial{Decision: v, Pid: c.pid}
	if a := (attempt{op, real}); !all.looked[a] && len(all.looked) < maxAttempts {
		if all.looked == nil {
			all.looked = map[attempt]bool{}
		}
		all.looked[a] = true
		c.identify(&d)
	}
	if all.queue == nil {
		all.queue, all.done = make(chan plan.Denial, maxAttempts), make(chan struct{})
		go c.b.recordAttempts(all.queue, all.done)
	}
	select {
	case all.queue <- d:
	case <-time.After(patience):
	}
}

// likelyPath is the path that a name means, as far as that is known without looking at the
// file itself: links of directories are followed. Those in writable directories are not, unless
// every read is recorded: they may change at any time.
func (b *Broker) likelyPath(full string) string {
	if b.config.Records == policy.RecordThorough {
		if real, err := b.meaning(full); err == nil {
			return real
		}
	}
	dir, name := path.Split(full)
	if name == "" || name == "." || name == ".." {
		return b.realFolder(path.Clean(full))
	}
	return join(b.realFolder(path.Clean(dir)), name)
}

// realFolder is the path of a directory behind its links.
func (b *Broker) realFolder(dir string) string {
	changes := b.config.Masks().Writable(dir)
	if dir == "/" || changes && b.config.Records != policy.RecordThorough {
		return dir
	}
	folders := &b.attempts.folders
	if real, ok := (*folders)[dir]; ok {
		return real
	}
	real, err := b.meaning(dir)
	if err != nil {
		real = dir
	}
	if *folders == nil || len(*folders) >= maxFolders {
		*folders = map[string]string{}
	}
	if !changes {
		(*folders)[dir] = real
	}
	return real
}

// recordAttempts records the attempts that would have succeeded outside, as far as permissions
// say.
func (b *Broker) recordAttempts(queue <-chan plan.Denial, done chan<- struct{}) {
	defer close(done)
	for d := range queue {
		if slices.ContainsFunc(b.config.Masks().Covered(d.Path), func(file string) bool { return succeedsAt(d.Op, file) }) {
			b.denials.Add(d)
		}
	}
}

// finishAttempts waits until all attempts are recorded.
func (b *Broker) finishAttempts() {
	all := &b.attempts
	all.mu.Lock()
	defer all.mu.Unlock()
	all.ended = true
	if all.queue == nil {
		return
	}
	close(all.queue)
	select {
	case <-all.done:
	case <-time.After(patience):
	}
}

// succeedsAt reports whether an operation on a file of the host would succeed, as far as
// permissions say.
func succeedsAt(op plan.Op, file string) bool {
	// This process is the command's user.
	may := func(file string, mode uint32) bool { return unix.Access(file, mode) == nil }
	var st unix.Stat_t
	missing := unix.Stat(file, &st) != nil
	switch op {
	case plan.OpRead:
		return !missing && st.Mode&unix.S_IFMT != unix.S_IFSOCK && may(file, unix.R_OK)
	case plan.OpExec:
		return !missing && st.Mode&unix.S_IFMT == unix.S_IFREG && may(file, unix.X_OK)
	case plan.OpWrite:
		return !missing && may(file, unix.W_OK)
	case plan.OpUnlink:
		return unix.Lstat(file, &st) == nil && may(path.Dir(file), unix.W_OK)
	}
	return may(path.Dir(file), unix.W_OK)
}
