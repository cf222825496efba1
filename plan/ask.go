package plan

import (
	"cmp"
	"path"
	"slices"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// JudgesReads reports whether each file has to be judged before it is read: a
// pattern hides something, or a person may be asked about it.
func (p *Plan) JudgesReads() bool { return p.Asks || p.HidesByPattern() }

// A Behind is what the host has where a rule keeps something from the command.
type Behind struct {
	// Path is the host's path of the judged one.
	Path string
	// Inside and Source are the folders, as seen inside and on the host, below
	// which both have the same names.
	Inside, Source string
}

// Behind returns what the host has at a path inside that is hidden, or not
// written to. ok is false for what no person can give: cloche's own protection,
// what is not the host's (a private folder, a file that cloche made), and what the
// kernel shows as files.
func (p *Plan) Behind(inside string) (b Behind, ok bool) {
	inside = path.Clean(inside)
	if p.locked(inside) {
		return Behind{}, false
	}
	line := &Path{Path: "/", Source: "/", Content: Host}
	for i := range p.Paths {
		e := &p.Paths[i]
		if e.Access == policy.Hidden || len(e.Path) < len(line.Path) || !pathx.Within(e.Path, inside) {
			continue
		}
		line = e
	}
	if line.Content != Host || line.Source == "" {
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

// JudgeWith returns a judge for the plan and for lines that a person added while
// the command runs; of two for one path the wider counts. What is locked stays as it
// is, and so does what a longer line or a pattern says: see [Judge.Path].
func (p *Plan) JudgeWith(given []Path) *Judge {
	q := *p
	q.Paths = nil
	replaced := map[string]bool{}
	wider := func(a, b Path) int { return cmp.Compare(b.Access, a.Access) }
	for _, e := range slices.SortedStableFunc(slices.Values(given), wider) {
		if !p.locked(e.Path) && !replaced[e.Path] && !q.gives(p, &e) {
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
	return q.Judge()
}

// gives reports whether a line of the plan, whose lines are all given, gives more than
// another that was given and lies in it: to read takes no writing away.
func (p *Plan) gives(to *Plan, e *Path) bool {
	return slices.ContainsFunc(p.Paths, func(o Path) bool {
		return o.Access > e.Access && pathx.Within(o.Path, e.Path) && to.JudgeWith([]Path{o}).Path(e.Path).Access > e.Access
	})
}

// JudgeUngranted returns a judge for the plan without what a person granted.
func (p *Plan) JudgeUngranted() *Judge {
	q := *p
	q.Paths = slices.DeleteFunc(slices.Concat(p.Paths, p.Repeated), func(e Path) bool { return e.Origin.Layer.Granted() })
	return q.Judge()
}

// locked reports whether a path lies in something locked.
func (p *Plan) locked(inside string) bool {
	around := func(e Path) bool { return e.Locked && pathx.Within(e.Path, inside) }
	return slices.ContainsFunc(p.Paths, around) || slices.ContainsFunc(p.Repeated, around)
}
