package verify

import (
	"bytes"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// missing tries to make a protected path that does not exist, and the folders on
// its way.
func (r *Run) missing(e plan.Path) {
	c := r.check(e)
	onHost := r.hostPath(e)
	r.trace(onHost)
	around := r.plan.Lookup(path.Dir(e.Path))
	for _, d := range pathx.Between(around.Path, e.Path) {
		c.attempts = append(c.attempts, on("mkdir", d))
	}
	c.attempts = append(c.attempts, on("create", e.Path), on("mkdir", e.Path))
	c.judge = func(a []answer) verdict {
		last := a[len(a)-2:]
		if last[0].ok() || last[1].ok() || appeared(onHost) {
			return broken("it can be made")
		}
		return held("it cannot be made: %v", last[0].Errno)
	}
	r.add(c)
}

// link looks where a link leads, and tries to replace it if it is protected.
func (r *Run) link(e plan.Path) {
	c := r.check(e)
	c.attempts = []attempt{on("readlink", e.Path)}
	if e.Protect {
		r.moving(&c, e.Path, r.hostPath(e))
	}
	c.judge = func(a []answer) verdict {
		switch {
		case !a[0].ok():
			return broken("the link cannot be followed: %v", a[0].Errno)
		case string(a[0].Data) != e.Target:
			return broken("the link leads to %q, not to %q", a[0].Data, e.Target)
		case len(a) > 1 && a[1].ok():
			return broken("the link can be replaced")
		}
		return held("the link leads to %s", e.Target)
	}
	r.add(c)
}

// text compares a generated file with what it should say.
func (r *Run) text(e plan.Path) {
	c := r.check(e)
	c.attempts = []attempt{on("read", e.Path), on("write", e.Path)}
	c.judge = func(a []answer) verdict {
		switch {
		case !a[0].ok():
			return broken("it cannot be read: %v", a[0].Errno)
		case !bytes.Equal(a[0].Data, digest(r.token, []byte(e.Text))):
			return broken("it holds something else")
		case a[1].ok():
			return broken("it can be written")
		}
		return held("it holds what the policy says")
	}
	r.add(c)
}

// pins tries to rename the folders between a writable one and what is hidden or
// protected in it: the rule is about the name.
func (r *Run) pins() {
	for _, pin := range slices.Backward(r.plan.Pins()) { // the deepest first
		if _, pinned := r.judge.Pinned(pin); !pinned {
			continue // what is in it may be written wherever it is
		}
		e := r.strictBelow(pin)
		c := r.check(e)
		c.subject = pin
		onHost, ok := r.plan.HostPath(pin)
		if !ok || !r.moving(&c, pin, onHost) {
			continue
		}
		c.judge = func(a []answer) verdict {
			switch {
			case a[0].ok():
				return broken("it can be renamed, and %s with it", e.Path)
			case a[0].Errno == unix.ENOENT:
				return untested("it is not there: something around it was moved away")
			}
			return held("it cannot be renamed: %v", a[0].Errno)
		}
		r.add(c)
	}
}

// strictBelow is a line below a folder for the sake of which the folder is pinned.
func (r *Run) strictBelow(dir string) plan.Path {
	for _, e := range r.plan.Paths {
		if e.Path != dir && e.Access != policy.Write && pathx.Within(dir, e.Path) {
			return e
		}
	}
	return r.plan.Lookup(dir)
}

// devices tries the null device, and one of the host's that nobody should have.
func (r *Run) devices(e plan.Path) {
	c := check{rules: []string{"devices"}, subject: e.Path, origin: e.Origin, attempts: []attempt{on("write", "/dev/null")}}
	forbidden := forbiddenDevice()
	if forbidden != "" {
		c.attempts = append(c.attempts, on("open", forbidden))
	}
	c.judge = func(a []answer) verdict {
		switch {
		case !a[0].ok():
			return broken("/dev/null cannot be used: %v", a[0].Errno)
		case len(a) > 1 && a[1].ok():
			return broken("%s can be opened", forbidden)
		case len(a) > 1:
			return held("%s cannot be opened: %v", forbidden, a[1].Errno)
		}
		return held("/dev/null can be used, and the host has no device to try")
	}
	r.add(c)
}

// forbiddenDevice is a device of the host that gives away what others have: a
// disk, or the kernel's messages or memory.
func forbiddenDevice() string {
	entries, _ := os.ReadDir("/dev")
	for _, d := range entries {
		if d.Type()&os.ModeDevice != 0 && d.Type()&os.ModeCharDevice == 0 && !strings.HasPrefix(d.Name(), "loop") {
			return "/dev/" + d.Name()
		}
	}
	for _, p := range []string{"/dev/kmsg", "/dev/mem"} {
		if exists(p) {
			return p
		}
	}
	return ""
}
