package resolve

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// settledRoom is room for the lines that are added after settle.
const settledRoom = 8

// settle chooses one line for each path and drops lines that repeat the one around them.
func (b *builder) settle() {
	lines := make(map[string]*candidate, len(b.candidates))
	for i := range b.candidates {
		if c := &b.candidates[i]; !c.Origin.Untrusted && !c.lowers && !c.Origin.Layer.Granted() {
			choose(lines, c)
		}
	}
	b.raise(lines)
	b.settleAbsent()
	b.checkLocked(lines)
	b.checkKernel()
	b.lower(lines)
	b.tighten(lines)
	mirror(lines)
	b.plan.Paths = make([]plan.Path, 0, len(lines)+settledRoom)
	for _, p := range sortedPaths(lines) {
		b.plan.Paths = append(b.plan.Paths, lines[p].Path)
		b.plan.Paths[len(b.plan.Paths)-1].Locked = lines[p].locked
	}
	b.dropAbsentProtection()
	b.dropAbsentOwn()
	b.dropRedundant()
	if b.plan.Asks = b.req.Asks; b.plan.Asks {
		b.keepRepeated(lines)
	}
}

// keepRepeated keeps the dropped lines that take access away: a person may later grant the
// folder around them.
func (b *builder) keepRepeated(lines map[string]*candidate) {
	for i := range b.plan.Paths {
		delete(lines, b.plan.Paths[i].Path)
	}
	for _, p := range sortedPaths(lines) {
		c := *lines[p]
		if c.locked || c.Access < policy.Write {
			c.Path.Locked = c.locked
			b.plan.Repeated = append(b.plan.Repeated, c.Path)
		}
	}
}

// choose keeps the stronger of two lines for one path: a locked one, then the one of the
// higher layer, then the stricter one.
func choose(lines map[string]*candidate, c *candidate) {
	old, ok := lines[c.Path.Path]
	if !ok || stronger(c, old) {
		lines[c.Path.Path] = c
	}
}

// sortedPaths returns the paths of the lines, sorted.
func sortedPaths(lines map[string]*candidate) []string {
	paths := slices.AppendSeq(make([]string, 0, len(lines)), maps.Keys(lines))
	slices.Sort(paths)
	return paths
}

func stronger(a, b *candidate) bool {
	if a.locked != b.locked {
		return a.locked
	}
	if a.Origin.Layer != b.Origin.Layer {
		return a.Origin.Layer > b.Origin.Layer
	}
	return a.Access < b.Access
}

// settleAbsent also chooses one rule for each path that does not exist: if a higher layer
// makes it writable, a lower one does not hide it.
func (b *builder) settleAbsent() {
	absent := b.plan.Absent
	if !slices.ContainsFunc(absent, func(e plan.Absent) bool { return e.Rule.Access == policy.Write && !e.Rule.Origin.Untrusted }) {
		return
	}
	b.plan.Absent = slices.DeleteFunc(slices.Clone(absent), func(e plan.Absent) bool {
		return slices.ContainsFunc(absent, func(o plan.Absent) bool {
			return o.Path == e.Path && o.Rule.Origin.Layer > e.Rule.Origin.Layer && !o.Rule.Origin.Untrusted
		})
	})
}

// checkLocked reports rules that would open cloche's own files.
func (b *builder) checkLocked(lines map[string]*candidate) {
	var hidden []string
	for p, l := range lines { // cloche's own files, and those with values of secrets
		if l.locked && l.Access == policy.Hidden {
			hidden = append(hidden, p)
		}
	}
	slices.Sort(hidden)
	for i := range b.candidates {
		c := &b.candidates[i]
		if c.locked || c.Origin.Layer == policy.LayerBuiltin || c.Access == policy.Hidden || c.Persisted() {
			continue
		}
		for _, p := range hidden {
			if secret := lines[p]; pathx.Within(p, c.Source) && secret.Origin.Layer != policy.LayerBuiltin {
				b.fail(&PolicyError{Rule: "paths", Path: orPath(c.Written, c.Source), Origin: c.Origin,
					Reason: "is never opened to a command: " + secret.Reason + " (" + secret.Origin.String() + ")", Fix: "remove the entry"})
			} else if pathx.Within(p, c.Source) {
				b.fail(&PolicyError{Rule: "paths", Path: orPath(c.Written, c.Source), Origin: c.Origin,
					Reason: "lies in " + p + ", where cloche keeps its own files; they are never opened to a command",
					Fix:    "remove the entry"})
			}
		}
	}
}

// raise applies grants. A grant only adds access: a grant to read does not make a writable
// path read-only. A grant does not override a rule of a higher layer that takes the access
// away: an option of the command line wins over a stored grant.
func (b *builder) raise(lines map[string]*candidate) {
	var grants []*candidate
	for i := range b.candidates {
		if c := &b.candidates[i]; c.Origin.Layer.Granted() {
			grants = append(grants, c)
		}
	}
	slices.SortStableFunc(grants, func(x, y *candidate) int {
		return cmp.Or(cmp.Compare(y.Access, x.Access), cmp.Compare(x.Path.Path, y.Path.Path))
	})
	for _, c := range grants {
		have := planOf(lines)
		have.Globs = b.plan.Globs
		v := judge.NewFiles(have).Path(c.Path.Path)
		switch {
		case given(have, c.Path) >= c.Access && v.Access >= c.Access && !b.tightened(c):
		case takes(&v, c):
			b.notice(plan.NoticeInfo, fmt.Sprintf("%s of %s is not given: %s says otherwise", c.Access, orPath(c.Written, c.Path.Path), v.Origin), c.Origin)
		default:
			choose(lines, c)
		}
	}
}

// tightened reports whether a rule of an untrusted file would take away a grant, which a
// person gave after having seen that rule.
func (b *builder) tightened(c *candidate) bool {
	return b.anyCandidate(func(u *candidate) bool {
		return u.Origin.Untrusted && u.Access < c.Access && pathx.Within(u.Path.Path, c.Path.Path)
	})
}

// takes reports whether a decision comes from a higher layer's rule that takes away what the
// line gives: one that hides or protects it, or is about the same path.
func takes(v *plan.Decision, c *candidate) bool {
	return v.Origin.Layer > c.Origin.Layer && v.Access < c.Access &&
		(v.Access == policy.Hidden || v.Protects() || v.At == c.Path.Path)
}

// lower applies the lines that only take access away.
func (b *builder) lower(lines map[string]*candidate) {
	if !b.anyCandidate(func(c *candidate) bool { return c.lowers }) {
		return
	}
	all := planOf(lines)
	for i := range b.candidates {
		if c := &b.candidates[i]; c.lowers && c.Access < all.Access(c.Path.Path) {
			lines[c.Path.Path] = c
		}
	}
}

// planOf returns a plan that only has the lines.
func planOf(lines map[string]*candidate) *plan.Plan {
	p := &plan.Plan{Paths: make([]plan.Path, 0, len(lines))}
	for _, c := range lines {
		p.Paths = append(p.Paths, c.Path)
	}
	return p
}

// kernelTrees are where the kernel shows processes, devices and settings as files. The command
// has its own /proc and /dev; /sys is read-only.
var kernelTrees = []string{"/proc", "/dev", "/sys"}

// checkKernel reports rules that would show the host's /proc or /dev, or make /sys writable.
func (b *builder) checkKernel() {
	for i := range b.candidates {
		c := &b.candidates[i]
		if c.Origin.Layer == policy.LayerBuiltin || c.Content != plan.Host {
			continue
		}
		if tree := kernelTree(c.Source); tree != "" && (tree != "/sys" || c.Access == policy.Write) {
			b.fail(&PolicyError{Rule: accessRule(c), Path: orPath(c.Written, c.Source), Origin: c.Origin,
				Reason: "lies in the host's " + tree + ", through which the kernel itself and other processes can be changed; it is never opened to a command",
				Fix:    "remove the entry"})
		}
	}
}

// kernelTree returns the kernel tree that contains a path, or "".
func kernelTree(p string) string {
	for _, tree := range kernelTrees {
		if pathx.Within(tree, p) {
			return tree
		}
	}
	return ""
}

func orPath(w, p string) string {
	if w != "" {
		return w
	}
	return p
}

// tighten applies the rules of untrusted files. Each may only take access away, and not what a
// person granted after having seen the rule.
func (b *builder) tighten(lines map[string]*candidate) {
	if !b.anyCandidate(func(c *candidate) bool { return c.Origin.Untrusted }) {
		return
	}
	trusted := planOf(lines)
	for i := range b.candidates {
		c := &b.candidates[i]
		if !c.Origin.Untrusted {
			continue
		}
		have := given(trusted, c.Path)
		if c.Access > have {
			b.ignored(c, have)
			continue
		}
		old, ok := lines[c.Path.Path]
		if !ok || !old.locked && !old.Origin.Layer.Granted() && c.Access < old.Access {
			lines[c.Path.Path] = c
		}
	}
}

// given returns the access that other rules give to the host's file that a line would show. A
// private folder gives none: it replaces the host's folder, which the line would show again.
func given(others *plan.Plan, line plan.Path) policy.Access {
	around := others.Lookup(line.Path)
	if around.Content != plan.Host || pathx.Rebase(around.Path, around.Source, line.Path) != line.Source {
		return policy.Hidden
	}
	return around.Access
}

func (b *builder) ignored(c *candidate, have policy.Access) {
	if c.Protect || c.Origin.Layer == policy.LayerTool {
		return // nothing there is writable, or the preset is reported as a whole
	}
	b.notice(plan.NoticeIgnored, fmt.Sprintf("%s of %q asks for more than the trusted policy gives (%s); run `cloche policy trust` to allow it",
		c.Access, orPath(c.Written, c.Path.Path), have), c.Origin)
}

// dropAbsentProtection drops the protection of paths that do not exist and that the command
// cannot create.
func (b *builder) dropAbsentProtection() {
	b.drop(func(e *plan.Path) bool {
		if e.Kind != hostfs.Missing || b.writableAround(e.Path) {
			return false
		}
		b.notice(plan.NoticeSkipped, fmt.Sprintf("paths.protect %q: does not exist, and nothing inside can create it", orPath(e.Written, e.Path)), e.Origin)
		return true
	})
}

// drop removes lines from the plan and returns them. It decides about all lines before it
// removes the first, because the line around one may be removed too.
func (b *builder) drop(out func(*plan.Path) bool) (dropped []plan.Path) {
	gone := make([]bool, len(b.plan.Paths))
	for i := range b.plan.Paths {
		gone[i] = out(&b.plan.Paths[i])
	}
	kept := b.plan.Paths[:0]
	for i := range b.plan.Paths {
		if gone[i] {
			dropped = append(dropped, b.plan.Paths[i])
		} else {
			kept = append(kept, b.plan.Paths[i])
		}
	}
	clear(b.plan.Paths[len(kept):])
	b.plan.Paths = kept
	return dropped
}

func (b *builder) anyCandidate(is func(*candidate) bool) bool {
	for i := range b.candidates {
		if is(&b.candidates[i]) {
			return true
		}
	}
	return false
}

// dropAbsentOwn drops cloche's own folders that do not exist and that the command cannot
// create, so that they are not created for nothing.
func (b *builder) dropAbsentOwn() {
	b.plan.Paths = slices.DeleteFunc(b.plan.Paths, func(e plan.Path) bool {
		return e.Create && e.Access == policy.Hidden && !b.writableAround(e.Path)
	})
}

// writableAround reports whether the command could create a path on the host.
func (b *builder) writableAround(p string) bool {
	if p == "/" {
		return false
	}
	around := b.plan.Lookup(path.Dir(p))
	return around.Access == policy.Write && around.Content == plan.Host && !around.Persisted()
}

// dropRedundant drops lines that repeat the line around them, unless they give back what a
// pattern takes away.
func (b *builder) dropRedundant() {
	repeated := b.drop(b.redundant)
	back := b.givingBack(b.plan.Paths, repeated)
	if len(back) == 0 {
		return // the lines are sorted already
	}
	b.plan.Paths = append(b.plan.Paths, back...)
	slices.SortFunc(b.plan.Paths, byPath)
}

func (b *builder) redundant(e *plan.Path) bool {
	if e.Path == "/" || e.Kind == hostfs.Missing {
		return false
	}
	around := b.plan.Lookup(path.Dir(e.Path))
	if e.Access == policy.Hidden {
		// Neither a private nor a persisted folder shows the host's files.
		return around.Access == policy.Hidden || around.Content == plan.Empty || around.Persisted()
	}
	return e.Content == plan.Host && around.Content == plan.Host && around.Access == e.Access && pathx.Rebase(around.Path, around.Source, e.Path) == e.Source
}
