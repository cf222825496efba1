//go:build amd64 || arm64

package notify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// This file decides about a place that was found. A deny function returns nil if the rules
// allow the operation. Otherwise it records the denial and returns the error to answer with,
// or errAnswered if somebody is asked first.

// guards reports whether the broker makes the changes of a path: it is in a guarded directory,
// or was granted during the run.
func (b *Broker) guards(path string) bool {
	return b.rootAround(path) != "" || b.asks.gave(path)
}

// rootAround is the innermost guarded directory around a path, or empty.
func (b *Broker) rootAround(path string) string {
	best := ""
	for _, r := range b.config.Roots {
		if len(r) > len(best) && pathx.Within(r, path) {
			best = r
		}
	}
	return best
}

// denyUnlessAllowed denies a change of a path that the rules do not let be written.
func (c *call) denyUnlessAllowed(op plan.Op, path string) error {
	if v := c.b.config.Judge().Path(path); v.Access != policy.Write {
		return c.deny(op, path, v)
	}
	return nil
}

// denyIfPinned denies to take a file away from where a rule is about it. The kernel refuses to
// move a mount point only to processes that see the mount, and the broker does not.
func (c *call) denyIfPinned(op plan.Op, path string) error {
	if v, pinned := c.b.config.Judge().Pinned(path); pinned {
		c.record(op, path, v)
		return unix.EBUSY
	}
	return nil
}

// denyIfLeads denies a symbolic link by which files would get names that a rule is about.
func (c *call) denyIfLeads(op plan.Op, path, text string) error {
	if v, found := c.b.config.Judge().Leads(path, text); found {
		return c.deny(op, path, v)
	}
	return nil
}

// deny asks somebody, or records the denial and returns its error.
func (c *call) deny(op plan.Op, path string, v plan.Decision) error {
	if c.askAbout(op, path, v) {
		return errAnswered
	}
	c.record(op, path, v)
	if v.OnlyReads() {
		return unix.EROFS // as the kernel says of a mount
	}
	return unix.EACCES
}

// leaveToKernel lets the kernel run a call whose path is in no guarded directory, and records
// a denial if the kernel is going to deny it.
func (c *call) leaveToKernel(op plan.Op, path string) error {
	if v := c.b.config.Judge().Path(path); v.Access != policy.Write {
		if c.askAbout(op, path, v) {
			return errAnswered
		}
		c.record(op, path, v)
	}
	return errGoOn
}

// failUnlessOutside is the answer with an error that was found when the path was looked up.
// The kernel might find another state. In a guarded directory it would then return EACCES,
// whatever the rules say, so the error found is the answer; elsewhere the kernel runs the call.
func (c *call) failUnlessOutside(guarded bool, err error) error {
	var errno unix.Errno
	if guarded && errors.As(err, &errno) {
		return err
	}
	return errGoOn
}

// failMissing answers a change of a name that leads nowhere inside, unless somebody grants
// what it means outside. full is the name, and guarded whether it is in a guarded directory.
func (c *call) failMissing(op plan.Op, full string, guarded bool, err error) error {
	if c.askAboutHidden(op, full) {
		return errAnswered
	}
	c.noteAttempt(op, full)
	return c.failUnlessOutside(guarded, err)
}

// allowsByName reports whether the rules allow a change because of its name alone: whatever is
// there, and whatever is there already, makes no difference to them. Then the broker makes the
// change without a look at the place, and the kernel finds the error if there is one.
func (c *call) allowsByName(at *place, op gitguard.Op) bool {
	if c.b.asks.given() || c.b.config.Judge().Path(at.path()).Access != policy.Write {
		return false
	}
	change := gitguard.Change{Op: op, At: gitPlace(at), Root: c.b.rootAround(at.path())}
	return change.Root != "" && !gitguard.Notable(change) && gitguard.Judge(change).Action == gitguard.Allow
}

// gitOps are the changes that gitguard is asked about.
var gitOps = map[plan.Op]gitguard.Op{
	plan.OpCreate: gitguard.Create, plan.OpWrite: gitguard.Write, plan.OpMkdir: gitguard.Mkdir, plan.OpSymlink: gitguard.Symlink,
	plan.OpLink: gitguard.Link, plan.OpRename: gitguard.Rename, plan.OpUnlink: gitguard.Remove,
}

func gitPlace(p *place) gitguard.Place {
	return gitguard.Place{Dir: p.dir, Path: p.dirPath, Name: p.name}
}

// denyGit denies a change because of which git outside could run something. If a file has to
// be written anew for the change, or instead of it, denyGit does that and answers the call.
func (c *call) denyGit(op plan.Op, at *place) error {
	return c.denyGitChange(op, at, nil, gitguard.Change{Op: gitOps[op]})
}

func (c *call) denyGitChange(op plan.Op, at, from *place, change gitguard.Change) error {
	change.At, change.Root = gitPlace(at), c.b.rootAround(at.path())
	if from != nil {
		change.From = gitPlace(from)
	}
	if gitguard.Notable(change) && c.needsLockAlone() {
		return errAlone
	}
	v := gitguard.Judge(change)
	if v.Action == gitguard.Refuse {
		reason := v.Reason
		if v.Fix != "" {
			reason += "; " + v.Fix
		}
		return c.deny(op, at.path(), plan.Decision{Access: policy.Read, Rule: v.Rule, Reason: reason, At: at.path(), Origin: policy.Origin{Source: "git directories are guarded"}})
	}
	if err := c.as(v.Put); err != nil || v.Action == gitguard.Allow {
		return err
	}
	// The broker has written the file itself, in place of the change.
	switch op {
	case plan.OpRename:
		if err := c.as(func() error { return unix.Unlinkat(from.dir, from.name, 0) }); err != nil {
			return err
		}
	case plan.OpCreate:
		return c.giveDiscarded()
	}
	c.answer(nil)
	return errAnswered
}

// giveDiscarded gives the process a file to write that nobody reads.
func (c *call) giveDiscarded() error {
	fd, err := unix.MemfdCreate("discarded", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // Linux before 6.3
		fd, err = unix.MemfdCreate("discarded", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return err
	}
	return c.give(fd, true)
}

// record records a denial.
func (c *call) record(op plan.Op, path string, v plan.Decision) {
	v.Op, v.Path = op, path
	c.recordDenial(plan.Denial{Decision: v})
}

// recordDenial is record for a denial that may be about something else than a path. The
// process is looked up once: equal denials are one entry.
func (c *call) recordDenial(d plan.Denial) {
	if c.b.denials.Wants(d) {
		c.identify(&d)
		d.Outside = c.b.deniedOutside(&d)
	}
	c.b.denials.Add(d)
}

// recordOther records the other name of a call that is denied for the first, if it is denied as
// well and takes another option to be allowed. Otherwise a user who adds the option for the
// first would be denied again. Where somebody is asked, each name is asked about in turn.
func (c *call) recordOther(op plan.Op, first, other string) {
	if c.b.asks != nil {
		return
	}
	files := c.b.config.Judge()
	if files.Path(first).Access == policy.Write || files.Path(other).Access == policy.Write {
		return
	}
	decide := func(path string) plan.Decision {
		d := files.Path(path)
		d.Op, d.Path = op, path
		judge.Fixer{}.Fix(&d)
		return d
	}
	if one, two := decide(first), decide(other); !slices.Equal(one.Ask, two.Ask) {
		c.record(op, other, two)
	}
}

// identify fills in which process made the call. It is not the thread.
func (c *call) identify(d *plan.Denial) {
	d.Pid = c.status().tgid
	if d.Pid == 0 {
		d.Pid = c.pid
	}
	d.Program, d.Argv = c.program(), CommandLine(d.Pid)
	if d.Op == plan.OpCall && d.Subject != "" {
		d.NoFix = denials.WithoutNamespaces(c.lineage(d.Pid))
	}
}

// maxLineage is how many processes say what a program was started for.
const maxLineage = 6

// lineage has the command lines of a process of the sandbox and of those that it was started by.
func (c *call) lineage(pid int) (lines [][]string) {
	inside, err := pidNamespace(pid)
	for err == nil && pid > 1 && len(lines) < maxLineage {
		lines = append(lines, CommandLine(pid))
		pid = statusOf(pid).parent
		if ns, err := pidNamespace(pid); err != nil || ns != inside {
			break
		}
	}
	return lines
}

// deniedOutside reports whether the system would deny a change of a file without a sandbox,
// too: then no rule can allow it. What a mask hides is checked elsewhere, after the answer, so
// that the time it takes tells nothing.
func (b *Broker) deniedOutside(d *plan.Denial) bool {
	switch d.Op {
	case plan.OpWrite, plan.OpCreate, plan.OpMkdir, plan.OpRename, plan.OpLink, plan.OpSymlink, plan.OpUnlink:
	default:
		return false
	}
	if d.Path == "" || d.Access == policy.Hidden || b.config.Masks == nil {
		return false
	}
	files := b.config.Masks().Covered(d.Path)
	return len(files) > 0 && !possible(d.Op, files[0])
}

// A change is judged by the state that the broker sees, and made a moment later. Two
// sandboxes can share a directory, each with a broker of its own: while one judges a file in
// `.git/h2`, the other could rename that to `.git/hooks`. So each broker holds a lock while it
// judges and makes a change. Changes whose verdict depends on a name alone share the lock.
// Renames, which change the names of all that is in a directory, and changes that mean
// something to git, whose verdict depends on other files, hold it alone.
//
// There is one lock for all sandboxes of a user: workspaces may be in each other, or be one
// directory under two names. It is a file in cloche's state directory, which no sandbox shows.
// Sandboxes of different users have different locks.

// lockPatience is how long a change waits for the lock. A stopped cloche keeps the lock.
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
		return errors.New("there is no state directory for the lock; set HOME or XDG_STATE_HOME")
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

// locked handles a call that may change a file under the lock. Waits of any length happen
// without it: a FIFO is opened, and a person asked, after handle has returned.
func (c *call) locked(handle func() error) error {
	if c.b.config.Lock == "" || !c.changesFiles() {
		return handle()
	}
	c.alone = c.alone || c.renames()
	for {
		if err := c.b.lock.take(c.b.config.Lock, c.alone); err != nil {
			c.record(plan.OpWrite, c.b.config.Lock, plan.Decision{
				Access: policy.Read, Rule: "paths.protect", Reason: "changes are judged under a lock: " + err.Error(), At: c.b.config.Lock,
				Origin: builtin("changes of several sandboxes"),
			})
			return unix.EBUSY
		}
		err := handle()
		c.b.lock.release()
		if err != errAlone {
			return err
		}
		c.alone = true
	}
}

// needsLockAlone reports whether the lock has to be held alone and is not. The handler then
// returns errAlone.
func (c *call) needsLockAlone() bool { return c.b.config.Lock != "" && !c.alone }
