package judge

import (
	"cmp"
	"path"
	"slices"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Behind is what the host has where a rule keeps something from the command.
type Behind struct {
	// Path is the host's path of the judged one.
	Path string
	// Inside and Source are the folders, as seen inside and on the host, below
	// which both have the same names.
	Inside, Source string
}

// FindBehind returns what the host has at a path inside that is hidden, or not
// written to. ok is false for what no person can give: cloche's own protection,
// what is not the host's (a private folder, a file that cloche made), and what the
// kernel shows as files.
func FindBehind(p *plan.Plan, inside string) (b Behind, ok bool) {
	inside = path.Clean(inside)
	if locked(p, inside) {
		return Behind{}, false
	}
	line := &plan.Path{Path: "/", Source: "/", Content: plan.Host}
	for i := range p.Paths {
		e := &p.Paths[i]
		if e.Access == policy.Hidden || len(e.Path) < len(line.Path) || !pathx.Within(e.Path, inside) {
			continue
		}
		line = e
	}
	if line.Content != plan.Host || line.Source == "" {
		return Behind{}, false
	}
	return Behind{Path: pathx.Rebase(line.Path, line.Source, inside), Inside: line.Path, Source: line.Source}, true
}

// Name is the path inside of a host's path in the same folder; ok is false for
// any other.
func (b *Behind) Name(hostPath string) (inside string, ok bool) {
	hostPath = path.Clean(hostPath)
	if !pathx.Within(b.Source, hostPath) {
		return "", false
	}
	return pathx.Rebase(b.Source, b.Inside, hostPath), true
}

// NewFilesWith returns a judge for the plan and for lines that a person added while
// the command runs; of two for one path the wider counts. What is locked stays as it
// is, and so does what a longer line or a pattern says: see [Files.Path].
func NewFilesWith(p *plan.Plan, given []plan.Path) *Files {
	q := *p
	q.Paths = nil
	replaced := map[string]bool{}
	wider := func(a, b plan.Path) int { return cmp.Compare(b.Access, a.Access) }
	for _, e := range slices.SortedStableFunc(slices.Values(given), wider) {
		if !locked(p, e.Path) && !replaced[e.Path] && !givesMore(p, q.Paths, &e) {
			e.Kind = hostfs.Missing // it may be moved and replaced, unlike what a policy names
			q.Paths = append(q.Paths, e)
			replaced[e.Path] = true
		}
	}
	for _, e := range slices.Concat(p.Paths, p.Repeated) {
		if !replaced[e.Path] {
			q.Paths = append(q.Paths, e)
		}
	}
	return NewFiles(&q)
}

// givesMore reports whether one of the given lines gives more than another that was given
// and lies in it: to read takes no writing away.
func givesMore(p *plan.Plan, given []plan.Path, e *plan.Path) bool {
	return slices.ContainsFunc(given, func(o plan.Path) bool {
		return o.Access > e.Access && pathx.Within(o.Path, e.Path) && NewFilesWith(p, []plan.Path{o}).Path(e.Path).Access > e.Access
	})
}

// NewFilesUngranted returns a judge for the plan without what a person granted.
func NewFilesUngranted(p *plan.Plan) *Files {
	q := *p
	q.Paths = slices.DeleteFunc(slices.Concat(p.Paths, p.Repeated), func(e plan.Path) bool { return e.Origin.Layer.Granted() })
	return NewFiles(&q)
}

// locked reports whether a path lies in something locked.
func locked(p *plan.Plan, inside string) bool {
	around := func(e plan.Path) bool { return e.Locked && pathx.Within(e.Path, inside) }
	return slices.ContainsFunc(p.Paths, around) || slices.ContainsFunc(p.Repeated, around)
}

// ClosedBelow returns what a rule keeps below a path inside, where that path has an
// access: the lines that give less, without those that lie in one another, and the
// patterns that hide. Patterns that only protect are left out: there are hundreds, and
// they hold wherever something is writable.
func ClosedBelow(p *plan.Plan, inside string, need policy.Access) (paths []plan.Path, patterns []plan.Glob) {
	for i := range p.Paths { // sorted: what is around comes first
		e := &p.Paths[i]
		if e.Path == inside || !pathx.Within(inside, e.Path) || e.Access >= need || e.Kind == hostfs.Missing {
			continue
		}
		if n := len(paths); n == 0 || !pathx.Within(paths[n-1].Path, e.Path) {
			paths = append(paths, *e)
		}
	}
	for i := range p.Globs {
		g := &p.Globs[i]
		if fixed := fixedPart(g); g.Access == policy.Hidden && (pathx.Within(fixed, inside) || pathx.Within(inside, fixed)) {
			patterns = append(patterns, *g)
		}
	}
	return paths, patterns
}
