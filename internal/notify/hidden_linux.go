//go:build amd64 || arm64

package notify

import (
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// What a mask hides is refused by the kernel, and looks like something that is
// not there. So that it is on record, the broker looks at names: those of opens
// for reading, with which the kernel then goes on, and those of changes that lead
// nowhere. The record depends on a name that another thread could change; the
// refusal does not.
//
// Whether it was the rule that refused is found out by another goroutine, on the
// host: a file that is not there or that the user may not read is no refusal of
// ours. If the answer to the command waited for that, its time would tell what is
// behind the mask.

// maxAsked bounds for how many different attempts the process is looked up.
const maxAsked = 1000

// maxFolders bounds how many folders are remembered.
const maxFolders = 4096

// hiding is what a broker keeps to find attempts at hidden files. Its zero value
// is ready.
type hiding struct {
	mu       sync.Mutex
	suspects chan plan.Denial
	settled  chan struct{}
	ended    bool
	asked    map[attempt]bool
	// folders are the real paths of folders in which the command can change
	// nothing.
	folders map[string]string
}

type attempt struct {
	op   plan.Op
	path string
}

// observe looks at an open for reading, or at the execution of a program, and lets
// the kernel go on with it, unless it is of a program that a pattern hides.
func (c *call) observe(op plan.Op, dirfd int32, address uint64) {
	if op == plan.OpExec && c.refusesProgram(dirfd, address) {
		return
	}
	text, err := c.text(address)
	if err == nil && text != "" {
		var w way
		w, err = c.whole(dirfd, text)
		text = w.whole
	}
	if err != nil || text == "" || c.b.config.Masks == nil {
		c.resume()
		return
	}
	// Who tries what a rule hides has to be looked up while the process waits, which
	// may have ended a moment later. Most names are not such, and need few looks or none.
	clean := path.Clean(text)
	_, _, hidden := c.b.config.Masks().Path(clean)
	if (hidden || !c.b.config.Masks().ShowsProgram(text)) && c.openRoot() == nil {
		c.suspect(op, text)
	}
	c.resume()
}

// refusesProgram refuses to execute a program that a pattern hides. The kernel reads the
// name again, and another thread can put another one there until then, or execute a
// descriptor: this is for the accident, and the docs say so.
func (c *call) refusesProgram(dirfd int32, address uint64) bool {
	if !c.b.config.Reads || c.openRoot() != nil {
		return false
	}
	name, err := c.path(dirfd, address)
	if err != nil || name.whole == "" {
		return false
	}
	real := c.b.followed(name.whole)
	v, hidden := c.b.hidesFolder(real)
	if hidden {
		c.refuse(plan.OpExec, real, v)
	}
	return hidden
}

// suspect notes an attempt at an absolute path, if a line of the plan hides it.
func (c *call) suspect(op plan.Op, whole string) {
	if c.b.config.Masks == nil || whole == "" {
		return
	}
	c.b.hiding.mu.Lock()
	defer c.b.hiding.mu.Unlock()
	v, real, hidden := c.b.config.Masks().Path(c.b.lexical(whole))
	if !hidden {
		return
	}
	d := plan.Denial{Op: op, Path: real, Verdict: v, Pid: c.pid}
	if a := (attempt{op, real}); !c.b.hiding.asked[a] && len(c.b.hiding.asked) < maxAsked {
		if c.b.hiding.asked == nil {
			c.b.hiding.asked = map[attempt]bool{}
		}
		c.b.hiding.asked[a] = true
		c.identify(&d)
	}
	c.b.settleLater(d)
}

// lexical is the path that a name means, as far as that can be told without
// looking at the file itself: the folders' links are followed. Those of writable
// folders are not, unless every read is looked at: they may change at any time.
func (b *Broker) lexical(whole string) string {
	if b.config.Records == policy.RecordThorough {
		return b.followed(whole)
	}
	dir, name := path.Split(whole)
	if name == "" || name == "." || name == ".." {
		return b.realFolder(path.Clean(whole))
	}
	return join(b.realFolder(path.Clean(dir)), name)
}

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// followed is the path behind all links.
func (b *Broker) followed(whole string) string {
	for range maxLinks {
		at, err := b.locate(whole)
		if err != nil {
			break
		}
		k, err := at.kind()
		next, linkErr := "", error(nil)
		if k == unix.S_IFLNK {
			next, linkErr = at.target()
		}
		whole = at.path()
		at.close()
		if err != nil || linkErr != nil || k != unix.S_IFLNK {
			return whole
		}
		whole = next
	}
	dir, name := path.Split(strings.TrimRight(whole, "/"))
	return path.Clean(join(b.realFolder(path.Clean("/"+dir)), name))
}

// realFolder is the path of a folder behind its links. Below a mask nothing can be
// looked up, and nothing is a link.
func (b *Broker) realFolder(dir string) string {
	changes := b.config.Masks().Writable(dir)
	if dir == "/" || changes && b.config.Records != policy.RecordThorough {
		return dir
	}
	if real, ok := b.hiding.folders[dir]; ok {
		return real
	}
	fd, real, err := b.folder(dir)
	if err == nil {
		unix.Close(fd)
	} else {
		real = join(b.realFolder(path.Dir(dir)), path.Base(dir))
	}
	if b.hiding.folders == nil || len(b.hiding.folders) >= maxFolders {
		b.hiding.folders = map[string]string{}
	}
	if !changes {
		b.hiding.folders[dir] = real
	}
	return real
}

// settleLater hands an attempt to the goroutine that finds out whether the rule
// was the reason.
func (b *Broker) settleLater(d plan.Denial) {
	h := &b.hiding
	if h.ended {
		return
	}
	if h.suspects == nil {
		h.suspects, h.settled = make(chan plan.Denial, maxAsked), make(chan struct{})
		go b.settle(h.suspects, h.settled)
	}
	select {
	case h.suspects <- d:
	case <-time.After(patience):
	}
}

func (b *Broker) settle(suspects <-chan plan.Denial, settled chan<- struct{}) {
	defer close(settled)
	for d := range suspects {
		if b.withheld(&d) {
			b.denials.Add(d)
		}
	}
}

// patience is how long a call, and the end of a run, wait for a file system of the
// host that does not answer.
const patience = 2 * time.Second

// endHiding waits until all attempts are settled.
func (b *Broker) endHiding() {
	b.hiding.mu.Lock()
	defer b.hiding.mu.Unlock()
	b.hiding.ended = true
	if b.hiding.suspects == nil {
		return
	}
	close(b.hiding.suspects)
	select {
	case <-b.hiding.settled:
	case <-time.After(patience):
	}
}

// withheld reports whether the attempt would have succeeded outside, as far as
// permissions say.
func (b *Broker) withheld(d *plan.Denial) bool {
	return slices.ContainsFunc(b.config.Masks().Covered(d.Path), func(file string) bool { return succeedsAt(d.Op, file) })
}

// succeedsAt reports whether an operation on a file of the host would succeed, as far as
// permissions say.
func succeedsAt(op plan.Op, file string) bool {
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

// may reports whether this process, which is the command's user, has access.
func may(file string, mode uint32) bool { return unix.Access(file, mode) == nil }
