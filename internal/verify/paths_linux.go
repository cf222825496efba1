package verify

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/prober"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// lines adds a check for each path of the plan.
func (r *Run) lines() {
	for _, e := range r.plan.Paths {
		switch {
		case e.Kind == hostfs.Missing:
			r.missing(e)
		case e.Kind == hostfs.Socket:
			r.socket(e)
		case e.Content == plan.Proc: // see processes
		case e.Content == plan.Devices:
			r.devices(e)
		case e.Content == plan.Link:
			r.link(e)
		case e.Content == plan.Text:
			r.text(e)
		case e.Access == policy.Hidden:
			r.hidden(e)
		case e.Access == policy.Read:
			r.readOnly(e)
		default:
			r.writable(e)
		}
	}
}

// check begins the check of a path.
func (r *Run) check(e plan.Path) check {
	c := check{rules: r.rules(e), subject: e.Path, origin: e.Origin}
	remapped := r.plan.Inside != r.plan.Workspace && r.plan.Inside != ""
	if remapped && (pathx.Within(r.plan.Inside, e.Path) || e.Path == r.plan.Workspace) {
		c.rules = append(c.rules, "remap")
		c.place = r.plan.Inside
	}
	return c
}

// rules returns the rules that a line of the plan is about, in the words of a policy
// file and of gaps.
func (r *Run) rules(e plan.Path) []string {
	access := "paths.write"
	switch {
	case e.Protect:
		access = "paths.protect"
	case e.Found:
		return []string{"paths.hide_found"}
	case e.Access == policy.Hidden:
		return []string{"paths.hide"}
	case e.Access == policy.Read:
		access = "paths.read"
	}
	switch {
	case e.Content == plan.Text:
		return []string{"hosts", access}
	case e.Content == plan.Empty && e.Access == policy.Write:
		return []string{"tmp", access}
	case e.Persisted():
		return []string{"persist", access}
	case e.Content == plan.Host && e.Source != e.Path:
		return []string{access, "binds"}
	}
	return []string{access}
}

// moving adds the attempt to move a path away, if that has to be prevented. If the
// backend declares a gap for it, the path is left alone.
func (r *Run) moving(c *check, p, onHost string) bool {
	if !r.inWritable(p) {
		return false
	}
	if slices.ContainsFunc(r.launch.Gaps, func(g backend.Gap) bool { return c.in(&g) }) {
		return false
	}
	aside := fmt.Sprintf("%s-moved-%d", fileName(r.token), len(r.moves))
	r.moves = append(r.moves, [2]string{onHost, path.Join(path.Dir(onHost), aside)})
	c.attempts = append(c.attempts, attempt{Do: "move", Path: prober.Text(p), To: prober.Text(path.Join(path.Dir(p), aside))})
	return true
}

// hidden tries to read, list, write and move a hidden path.
func (r *Run) hidden(e plan.Path) {
	c := r.check(e)
	onHost := r.hostPath(e)
	c.attempts = []attempt{r.read(e.Path), write(e.Path)}
	made := ""
	if e.Kind == hostfs.Dir {
		name := fileName(r.token)
		made = path.Join(onHost, name)
		r.trace(made)
		c.attempts[1] = create(path.Join(e.Path, name))
	}
	r.moving(&c, e.Path, onHost)
	c.judge = func(a []answer) verdict {
		switch {
		case e.Kind == hostfs.Dir && a[0].OK() && r.stranger(e, a[0].List) != "":
			return broken("it can be listed: it shows %q", r.stranger(e, a[0].List))
		case e.Kind != hostfs.Dir && a[0].OK() && a[0].N > 0:
			return broken("it can be read")
		case a[1].OK() || appeared(made):
			return broken("it can be written")
		case len(a) > 2 && a[2].OK():
			return broken("it can be renamed")
		case a[0].OK() && e.Kind != hostfs.Dir && isEmpty(onHost):
			return untested("the host's file is empty, and so it is inside")
		case a[0].OK():
			return held("it is empty inside, and cannot be written: %v", a[1].Errno)
		}
		return held("it cannot be read: %v", a[0].Errno)
	}
	r.add(c)
}

// stranger returns a name in the listing of a hidden folder that leads to no other line
// of the plan, or "".
func (r *Run) stranger(e plan.Path, names []prober.Text) string {
	for _, name := range names {
		p := path.Join(e.Path, string(name))
		leads := false
		for _, other := range r.plan.Paths {
			leads = leads || pathx.Within(p, other.Path)
		}
		if !leads {
			return string(name)
		}
	}
	return ""
}

func isEmpty(p string) bool {
	info, err := os.Stat(p)
	return err == nil && info.Size() == 0
}

// readOnly tries to read a read-only path, and to change it.
func (r *Run) readOnly(e plan.Path) {
	c := r.check(e)
	if e.Kind != hostfs.Dir && e.Kind != hostfs.File {
		r.add(c.untestable("it is neither a file nor a folder, and opening it could do something"))
		return
	}
	if v := r.judge.Path(e.Path); v.Access < policy.Read {
		r.add(c.untestable("%s %s takes it back", v.Rule, v.Subject))
		return
	}
	onHost := r.hostPath(e)
	c.attempts = []attempt{r.read(e.Path), write(e.Path)}
	made := ""
	if e.Kind == hostfs.Dir {
		at := path.Join(r.witness(e), fileName(r.token))
		made = pathx.Rebase(e.Path, onHost, at)
		r.trace(made)
		c.attempts[1] = create(at)
	}
	sample, sampled := r.sample(e, e.Path, onHost)
	c.attempts = append(c.attempts, r.read(sample))
	r.moving(&c, e.Path, onHost)
	c.judge = func(a []answer) verdict {
		switch {
		case a[1].OK() || appeared(made):
			return broken("it can be written")
		case len(a) > 3 && a[3].OK():
			return broken("it can be renamed")
		case !a[0].OK() && !sampled && r.hidesBelow(e):
			return untested("it cannot be listed, for something in it is hidden, and there is nothing else in it to read")
		case !a[0].OK() && !a[2].OK() && (e.Content != plan.Host || may(onHost, unix.R_OK)):
			return broken("it cannot be read: %v", a[0].Errno)
		case r.elsewhere(e) && a[0].OK() && !sameFile(onHost, a[0]):
			return broken("what is there is not %s", onHost)
		case a[1].Errno == unix.ETXTBSY:
			return untested("it is a program that runs now, which nobody can write")
		}
		return held("it cannot be written: %v", a[1].Errno)
	}
	r.add(c)
}

// sample returns a path in a folder that the same line of the plan makes readable. Some
// backends cannot list a folder in which something is hidden, so the folder itself may
// not be readable.
func (r *Run) sample(e plan.Path, dir, onHost string) (string, bool) {
	entries, _ := os.ReadDir(onHost)
	for _, d := range entries {
		p, there := path.Join(dir, d.Name()), path.Join(onHost, d.Name())
		if !d.IsDir() && !d.Type().IsRegular() || r.judge.Path(p).Access != policy.Read || r.plan.Lookup(p).Path != e.Path || !may(there, unix.R_OK) {
			continue
		}
		if !slices.ContainsFunc(r.plan.Paths, func(l plan.Path) bool { return pathx.Within(p, l.Path) }) {
			return p, true
		}
		if found, ok := r.sample(e, p, there); ok {
			return found, true
		}
	}
	return e.Path, false
}

// hidesBelow reports whether a path below the line's path is hidden.
func (r *Run) hidesBelow(e plan.Path) bool {
	return slices.ContainsFunc(r.plan.Paths, func(l plan.Path) bool {
		return l.Access == policy.Hidden && l.Path != e.Path && pathx.Within(e.Path, l.Path)
	})
}

// elsewhere reports whether the line shows a path of the host at another path inside.
func (r *Run) elsewhere(e plan.Path) bool { return e.Content == plan.Host && e.Source != e.Path }

func sameFile(p string, a answer) bool {
	var st unix.Stat_t
	return unix.Stat(p, &st) != nil || st.Dev == a.Dev && st.Ino == a.Ino
}

// witness returns a folder that the line makes read-only and that the caller may write
// outside. Only there does an attempt show what the sandbox does.
func (r *Run) witness(e plan.Path) string {
	if may(r.hostPath(e), unix.W_OK) {
		return e.Path
	}
	candidates := pathx.Between("/", r.plan.Inside)
	for _, v := range r.plan.Env {
		if v.Name == "HOME" && path.IsAbs(v.Value) {
			candidates = append(candidates, path.Clean(v.Value))
		}
	}
	for _, p := range candidates {
		onHost, ok := r.plan.HostPath(p)
		if ok && r.plan.Lookup(p).Path == e.Path && isRealFolder(onHost) && may(onHost, unix.W_OK) {
			return p
		}
	}
	return e.Path
}

func isRealFolder(p string) bool {
	info, err := os.Lstat(p)
	return err == nil && info.IsDir()
}

// writable tries to write a writable path.
func (r *Run) writable(e plan.Path) {
	c := r.check(e)
	onHost := r.hostPath(e)
	tried := onHost // the path of the host that the attempt writes
	if e.Kind == hostfs.Dir {
		tried = path.Join(onHost, fileName(r.token))
	}
	if v := r.judge.Path(e.Path); v.Access < policy.Write {
		c = c.untestable("%s %s takes it back", v.Rule, v.Subject)
	} else if refusal := gitguard.JudgeLine(r.plan, e, tried); refusal.Action != gitguard.Allow {
		c = c.untestable("git directories are guarded (%s)", refusal.Rule)
	} else if e.Kind == hostfs.Dir {
		c = r.writableFolder(c, e, onHost)
	} else if e.Kind == hostfs.File {
		c.attempts = []attempt{write(e.Path)}
		c.judge = func(a []answer) verdict {
			switch {
			case a[0].OK() && (!r.elsewhere(e) || sameFile(onHost, a[0])):
				return held("it can be written")
			case a[0].OK():
				return broken("what is there is not %s", onHost)
			case a[0].Errno == unix.ETXTBSY || !may(onHost, unix.W_OK):
				return untested("the caller cannot write it either")
			}
			return broken("it cannot be written: %v", a[0].Errno)
		}
	} else {
		c = c.untestable("it is neither a file nor a folder, and opening it could do something")
	}
	r.add(c)
}

// writableFolder tries to create a file, and checks where it appears on the host.
func (r *Run) writableFolder(c check, e plan.Path, onHost string) check {
	at, ok := r.newName(e.Path)
	if !ok {
		return c.untestable("a pattern speaks about every new name in it")
	}
	made := pathx.Rebase(e.Path, onHost, at)
	r.trace(made)
	c.attempts = []attempt{create(at)}
	c.judge = func(a []answer) verdict {
		private := e.Content == plan.Empty
		switch {
		case private && appeared(made):
			return broken("what is written there appears on the host")
		case a[0].Errno == unix.EEXIST && !private:
			return untested("another path shows the same folder, and was tried first")
		case !a[0].OK() && !private && !e.Create && !may(onHost, unix.W_OK):
			return untested("the caller cannot write it either")
		case !a[0].OK():
			return broken("it cannot be written: %v", a[0].Errno)
		case private:
			return held("it can be written, and nothing appears on the host")
		case !appeared(made):
			return broken("what is written there does not appear in %s on the host", onHost)
		}
		return held("it can be written")
	}
	return c
}

// missing tries to create a protected path that does not exist, and the folders above
// it.
func (r *Run) missing(e plan.Path) {
	c := r.check(e)
	onHost := r.hostPath(e)
	r.trace(onHost)
	around := r.plan.Lookup(path.Dir(e.Path))
	for _, d := range pathx.Between(around.Path, e.Path) {
		c.attempts = append(c.attempts, on("mkdir", d))
	}
	c.attempts = append(c.attempts, create(e.Path), on("mkdir", e.Path))
	c.judge = func(a []answer) verdict {
		last := a[len(a)-2:]
		if last[0].OK() || last[1].OK() || appeared(onHost) {
			return broken("it can be made")
		}
		return held("it cannot be made: %v", last[0].Errno)
	}
	r.add(c)
}

// link checks the target of a link, and tries to replace the link if it is protected.
func (r *Run) link(e plan.Path) {
	c := r.check(e)
	c.attempts = []attempt{on("readlink", e.Path)}
	if e.Protect {
		r.moving(&c, e.Path, r.hostPath(e))
	}
	c.judge = func(a []answer) verdict {
		switch {
		case !a[0].OK():
			return broken("the link cannot be followed: %v", a[0].Errno)
		case string(a[0].Data) != e.Target:
			return broken("the link leads to %q, not to %q", a[0].Data, e.Target)
		case len(a) > 1 && a[1].OK():
			return broken("the link can be replaced")
		}
		return held("the link leads to %s", e.Target)
	}
	r.add(c)
}

// text compares a generated file with the text of the plan.
func (r *Run) text(e plan.Path) {
	c := r.check(e)
	c.attempts = []attempt{r.read(e.Path), write(e.Path)}
	c.judge = func(a []answer) verdict {
		switch {
		case !a[0].OK():
			return broken("it cannot be read: %v", a[0].Errno)
		case a[0].Data != prober.Hash(prober.Text(r.token), prober.Text(e.Text)):
			return broken("it holds something else")
		case a[1].OK():
			return broken("it can be written")
		}
		return held("it holds what the policy says")
	}
	r.add(c)
}

// pins tries to rename the folders between a writable folder and a hidden or protected
// path in it. A rename would make the rule apply to a name that no longer exists.
func (r *Run) pins() {
	for _, pin := range slices.Backward(r.plan.Pins()) { // the deepest first
		if _, pinned := r.judge.Pinned(pin); !pinned {
			continue // the paths in it may be written under any name
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
			case a[0].OK():
				return broken("it can be renamed, and %s with it", e.Path)
			case a[0].Errno == unix.ENOENT:
				return untested("it is not there: something around it was moved away")
			}
			return held("it cannot be renamed: %v", a[0].Errno)
		}
		r.add(c)
	}
}

// strictBelow returns the path because of which a folder must not be renamed.
func (r *Run) strictBelow(dir string) plan.Path {
	for _, e := range r.plan.Paths {
		if e.Path != dir && e.Access != policy.Write && pathx.Within(dir, e.Path) {
			return e
		}
	}
	return r.plan.Lookup(dir)
}

// devices tries /dev/null, and a device of the host that no command should have.
func (r *Run) devices(e plan.Path) {
	c := check{rules: []string{"devices"}, subject: e.Path, origin: e.Origin, attempts: []attempt{write("/dev/null")}}
	forbidden := forbiddenDevice()
	if forbidden != "" {
		c.attempts = append(c.attempts, openWith(forbidden, unix.O_RDONLY))
	}
	c.judge = func(a []answer) verdict {
		switch {
		case !a[0].OK():
			return broken("/dev/null cannot be used: %v", a[0].Errno)
		case len(a) > 1 && a[1].OK():
			return broken("%s can be opened", forbidden)
		case len(a) > 1:
			return held("%s cannot be opened: %v", forbidden, a[1].Errno)
		}
		return held("/dev/null can be used, and the host has no device to try")
	}
	r.add(c)
}

// forbiddenDevice returns a device of the host that would disclose data of others: a
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
