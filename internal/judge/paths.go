package judge

import (
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Files decides about paths: it answers what a plan says of each. It holds the plan's rules in a form
// in which the number of patterns hardly matters: it is asked about every file
// that a command creates. It never changes and is safe for concurrent use.
type Files struct {
	lines  []*plan.Path          // longest path first
	byPath map[string]*plan.Path // the same
	// pins are the paths that have to stay where they are: see Plan.Pins. Each
	// has the line because of which.
	pins map[string]*plan.Path
	// named are the patterns whose last part is a plain name, by that name;
	// the others have to be tried one by one.
	named map[string][]pattern
	other []pattern
	// aboutPlaces and excepting are for NeedsWalk: whether a pattern is about more
	// than names, and one pattern for each list of exceptions.
	aboutPlaces bool
	excepting   []pattern
	// parted are the patterns of more than one name: see Leads.
	parted []pattern
	// last is what was found out about the folder of the last path. Most changes come in the
	// same folder as the one before.
	last atomic.Pointer[folderLine]
}

// A folderLine is the line that decides in a folder.
type folderLine struct {
	folder string
	line   *plan.Path
	// only: no pattern that matches the folder, or one around it, makes the decision stricter.
	only bool
}

// A pattern is a glob of the plan, taken apart.
type pattern struct {
	*plan.Glob
	// tail is set for "**/a/b": the plain parts at the end, after which
	// nothing but "**" is left. Comparing it is all that matching takes.
	tail string
	// first and last are what is around the one star of "**/first*last", if wild
	// is set. Comparing them with a name is all that matching takes.
	wild        bool
	first, last string
}

// NewFiles returns a judge for the plan, which must not change afterwards.
func NewFiles(p *plan.Plan) *Files {
	n := len(p.Paths) + len(p.Absent)
	j := &Files{lines: make([]*plan.Path, 0, n), named: map[string][]pattern{}, byPath: make(map[string]*plan.Path, n), pins: map[string]*plan.Path{}}
	for _, list := range [][]plan.Path{p.Paths, p.AbsentLines()} {
		for i := range list {
			j.lines = append(j.lines, &list[i])
		}
	}
	slices.SortStableFunc(j.lines, func(a, b *plan.Path) int { return len(b.Path) - len(a.Path) })
	for _, e := range j.lines {
		if _, ok := j.byPath[e.Path]; !ok {
			j.byPath[e.Path] = e
		}
	}
	for i := range p.Paths {
		j.pin(p, &p.Paths[i])
	}
	for i := range p.Globs {
		j.addGlob(&p.Globs[i])
	}
	return j
}

// pin notes that a line, and the folders between it and the writable one around
// it, must not move: its rule is about the place where the file is now.
func (j *Files) pin(p *plan.Plan, e *plan.Path) {
	if e.Kind == hostfs.Missing || e.Path == "/" {
		return
	}
	j.pins[e.Path] = e
	outer := p.Lookup(path.Dir(e.Path))
	if outer.Access != policy.Write || e.Access == policy.Write && shownBy(e, &outer) {
		return
	}
	for _, dir := range pathx.Between(outer.Path, e.Path) {
		if j.pins[dir] == nil {
			j.pins[dir] = e
		}
	}
}

// shownBy reports whether a line shows the very file that the line around it would
// show at that place. A persisted, private or bound path does not: what it covers must
// not get another name.
func shownBy(e, outer *plan.Path) bool {
	return e.Content == plan.Host && outer.Content == plan.Host && e.Source == pathx.Rebase(outer.Path, outer.Source, e.Path)
}

// Pinned reports whether the file at a path has to stay where it is, and the
// rule because of which.
func (j *Files) Pinned(inside string) (plan.Decision, bool) {
	e := j.pins[inside]
	if e == nil {
		return plan.Decision{}, false
	}
	d := ByLine(e)
	d.Access = policy.Read
	return d, true
}

func (j *Files) addGlob(g *plan.Glob) {
	full := g.Pattern
	if !strings.HasPrefix(full, "/") {
		full = "/**/" + full
	}
	pat := pattern{Glob: g}
	if rest, ok := strings.CutPrefix(full, "/**"); ok && pathx.IsPlain(rest) {
		pat.tail = rest
	}
	j.noteMoves(pat)
	name := path.Base(full)
	if !pathx.IsPlain(name) {
		first, last, star := strings.Cut(name, "*")
		pat.wild = star && full == "/**/"+name && pathx.IsPlain(first) && pathx.IsPlain(last)
		pat.first, pat.last = first, last
		j.other = append(j.other, pat)
		return
	}
	j.named[name] = append(j.named[name], pat)
}

// Path returns what the plan says of an absolute path as seen inside, whose
// symbolic links are resolved and which is cleaned first. The longest match decides: a line of the
// plan may give back what a pattern takes in a folder above it. Where both are
// about the same path, the higher layer decides, and within a layer the stricter.
// A line of a file that is not trusted gives nothing back.
func (j *Files) Path(inside string) plan.Decision {
	inside = path.Clean(inside)
	if j.byPath[inside] == nil && inside != "/" {
		if f := j.folderLine(parent(inside)); f.only {
			d := ByLine(f.line)
			j.tighten(&d, f.line, inside)
			return d
		}
	}
	return j.search(inside)
}

// folderLine is the line that decides in a folder.
func (j *Files) folderLine(folder string) *folderLine {
	f := j.last.Load()
	if f == nil || f.folder != folder {
		f = &folderLine{folder: strings.Clone(folder), line: j.line(folder, func(*plan.Path) bool { return true })}
		f.only = trusted(f.line) && j.search(folder).Access == f.line.Access
		j.last.Store(f)
	}
	return f
}

// tighten applies the patterns that match a path itself to the decision so far.
func (j *Files) tighten(d *plan.Decision, line *plan.Path, at string) {
	named := j.named[at[strings.LastIndexByte(at, '/')+1:]]
	for i := range named {
		named[i].tighten(d, line, at)
	}
	for i := range j.other {
		j.other[i].tighten(d, line, at)
	}
}

// search is Path for a clean path, without what is known of its folder.
func (j *Files) search(inside string) plan.Decision {
	line := j.line(inside, func(*plan.Path) bool { return true })
	d := ByLine(line)
	if line.Origin.Untrusted {
		line = j.line(inside, trusted)
	}
	for at := inside; len(at) >= len(line.Path) && at != "/"; at = parent(at) {
		j.tighten(&d, line, at)
	}
	return d
}

// line is the longest line around a clean path that counts.
func (j *Files) line(inside string, counts func(*plan.Path) bool) *plan.Path {
	for p := inside; ; p = parent(p) {
		if e := j.byPath[p]; e != nil && counts(e) {
			return e
		}
		if p == "/" {
			return &nowhere
		}
	}
}

// nowhere decides where no line does.
var nowhere = plan.Path{Path: "/", Access: policy.Hidden, Content: plan.Empty, Kind: hostfs.Dir}

func trusted(e *plan.Path) bool { return !e.Origin.Untrusted }

// ByLine is the decision about a path that only a line of the plan is about.
func ByLine(e *plan.Path) plan.Decision {
	subject := e.Path
	if e.Written != "" {
		subject = e.Written
	}
	return plan.Decision{Access: e.Access, Rule: lineRule(e), Subject: subject, Reason: e.Reason, Origin: e.Origin, At: e.Path}
}

// The rules that are asked for by name.
const (
	ruleProtect   = "paths.protect"
	ruleRead      = "paths.read"
	ruleHideFound = "paths.hide_found"
)

func lineRule(e *plan.Path) string {
	switch {
	case e.Protect:
		return ruleProtect
	case e.Found:
		return ruleHideFound
	case e.Access == policy.Hidden:
		return "paths.hide"
	case e.Access == policy.Read:
		return ruleRead
	}
	return "paths.write"
}

// tighten applies the pattern, if it matches at, to the decision so far.
func (p *pattern) tighten(d *plan.Decision, line *plan.Path, at string) {
	if p.Access >= d.Access || at == line.Path && p.yieldsTo(line) || !p.matches(at) || p.excepted(line.Path, at) {
		return
	}
	*d = plan.Decision{Access: p.Access, Rule: p.rule(), Subject: p.Pattern, Reason: p.Reason, Origin: p.Origin, At: at}
}

func (p *pattern) rule() string {
	if p.Access == policy.Read {
		return ruleProtect
	}
	return "paths.hide"
}

// yieldsTo reports whether the pattern gives way to a line about the very path
// that it matches. A preset's pattern also does to a preset's line: whoever works
// in a folder named like one that presets protect has asked for that folder, and a
// preset that protects all names in a folder lists those that may be written.
func (p *pattern) yieldsTo(line *plan.Path) bool {
	return line.Origin.Layer > p.Origin.Layer || line.Access == policy.Write && p.Origin.Layer <= policy.LayerTool
}

func (p *pattern) matches(at string) bool {
	if p.tail != "" {
		return strings.HasSuffix(at, p.tail)
	}
	if p.wild {
		name := at[strings.LastIndexByte(at, '/')+1:]
		return len(name) >= len(p.first)+len(p.last) && strings.HasPrefix(name, p.first) && strings.HasSuffix(name, p.last)
	}
	return pathx.MatchGlobExactly(p.Pattern, at)
}

// excepted reports whether a folder between the line and the match is one in
// which the pattern does not hold.
func (p *pattern) excepted(line, at string) bool {
	if len(p.ExceptUnder) == 0 {
		return false
	}
	for _, dir := range pathx.Between(line, at) {
		if slices.Contains(p.ExceptUnder, path.Base(dir)) {
			return true
		}
	}
	return slices.ContainsFunc(p.ExceptUnder, func(folder string) bool {
		return strings.HasPrefix(folder, "/") && folder != at && pathx.Within(folder, at)
	})
}
