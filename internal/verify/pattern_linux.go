package verify

import (
	"fmt"
	"os"
	"path"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// patterns tries each pattern in each writable folder, with a name that does not
// exist yet.
func (r *Run) patterns() {
	for _, g := range r.plan.Globs {
		c := check{rules: []string{"paths.protect"}, subject: g.Pattern, origin: g.Origin}
		if g.Access == policy.Hidden {
			c.rules[0] = "paths.hide"
		}
		c.judge = func([]answer) verdict {
			return untested("no writable folder has a place for a name that it decides about")
		}
		var names []example
		for _, root := range r.writableRoots() {
			if x, ok := r.example(g, root); ok {
				names = append(names, x)
			}
		}
		switch {
		case len(names) == 0:
		case g.Access == policy.Hidden:
			r.hiddenPattern(&c, names)
		default:
			r.protectedPattern(&c, names)
		}
		r.add(c)
	}
}

// An example is a name that a pattern matches, inside and on the host, and the
// folders that have to be made for it.
type example struct {
	inside, onHost string
	folders        []string // inside
}

// example finds a name below a writable root that a pattern decides about and
// that neither the host has nor another rule stands in the way of.
func (r *Run) example(g plan.Glob, root plan.Path) (example, bool) {
	for _, p := range examples(g.Pattern, root.Path, r.token) {
		x := example{inside: p, onHost: pathx.Rebase(root.Path, root.Source, p)}
		if v := r.judge.Path(p); v.Access != g.Access || exists(x.onHost) || r.plan.Lookup(p).Path != root.Path {
			continue
		}
		free := true
		for _, d := range pathx.Between(root.Path, p) {
			free = free && r.judge.Path(d).Access == policy.Write
			if !exists(pathx.Rebase(root.Path, root.Source, d)) {
				x.folders = append(x.folders, d)
			}
		}
		if free {
			return x, true
		}
	}
	return example{}, false
}

// protectedPattern tries to make files and folders of those names.
func (r *Run) protectedPattern(c *check, names []example) {
	var last []int // the attempts that must not work
	for _, x := range names {
		r.trace(x.onHost)
		for _, d := range x.folders {
			c.attempts = append(c.attempts, on("mkdir", d))
		}
		last = append(last, len(c.attempts), len(c.attempts)+1)
		c.attempts = append(c.attempts, on("create", x.inside), on("mkdir", x.inside))
	}
	c.judge = func(a []answer) verdict {
		for i, n := range last {
			if x := names[i/2]; a[n].ok() || appeared(x.onHost) {
				return broken("%s can be made", x.inside)
			}
		}
		return held("%s cannot be made: %v", names[0].inside, a[last[0]].Errno)
	}
}

// hiddenPattern puts files of those names onto the host and tries to read them.
func (r *Run) hiddenPattern(c *check, names []example) {
	for _, x := range names {
		if err := r.plant(x.onHost); err != nil {
			c.attempts = nil
			c.judge = func([]answer) verdict { return untested("no file can be made to try it: %v", err) }
			return
		}
		c.attempts = append(c.attempts, on("read", x.inside))
	}
	c.judge = func(a []answer) verdict {
		for i, x := range names {
			if a[i].ok() && a[i].N > 0 {
				return broken("%s can be read", x.inside)
			}
		}
		return held("%s cannot be read: %v; its name, size and times can be seen", names[0].inside, a[0].Errno)
	}
}

// plant makes a file with the token in it.
func (r *Run) plant(p string) error {
	r.trace(p)
	if err := os.MkdirAll(path.Dir(p), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, r.token)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
