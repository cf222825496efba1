package plan

import (
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// A Verdict is what a plan says of one path, and why.
type Verdict struct {
	Access policy.Access `json:"access"`
	// Rule names the deciding rule in the words of a policy file, Subject is its
	// path or pattern.
	Rule    string        `json:"rule"`
	Subject string        `json:"subject"`
	Reason  string        `json:"reason,omitempty"`
	Origin  policy.Origin `json:"origin"`
	// At is the path, the judged one or a folder above it, that the rule matches.
	At string `json:"at,omitempty"`
}

// Protects reports whether the rule keeps what it is about from changes.
func (v *Verdict) Protects() bool { return v.Rule == ruleProtect }

// NotWritable is why a path that can only be read is not written: no rule allows it.
const NotWritable = "not in the writable paths"

// OnlyReads reports whether the rule lets a path be read, and says no more: what is
// not written there is so because no rule lets it be.
func (v *Verdict) OnlyReads() bool { return v.Access == policy.Read && v.Rule == ruleRead }

// ReadsHost is where the lines come from that show the host's files read-only: that of
// all paths, and those of homes in a folder that is hidden otherwise.
var ReadsHost = policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: reads: host"}

// A Judge answers what a plan says of paths. It holds the plan's rules in a form
// in which the number of patterns hardly matters: it is asked about every file
// that a command creates. It never changes and is safe for concurrent use.
type Judge struct {
	lines  []Path           // longest path first
	byPath map[string]*Path // the same
	// pins are the paths that have to stay where they are: see Plan.Pins. Each
	// has the line because of which.
	pins map[string]*Path
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
}

// A pattern is a glob of the plan, taken apart.
type pattern struct {
	*Glob
	// tail is set for "**/a/b": the plain parts at the end, after which
	// nothing but "**" is left. Comparing it is all that matching takes.
	tail string
	// first and last are what is around the one star of "**/first*last", if wild
	// is set. Comparing them with a name is all that matching takes.
	wild        bool
	first, last string
}

// Judge returns a judge for the plan, which must not change afterwards.
func (p *Plan) Judge() *Judge {
	n := len(p.Paths) + len(p.Absent)
	j := &Judge{lines: slices.Concat(p.Paths, p.AbsentLines()), named: map[string][]pattern{}, byPath: make(map[string]*Path, n), pins: map[string]*Path{}}
	slices.SortStableFunc(j.lines, func(a, b Path) int { return len(b.Path) - len(a.Path) })
	for i := range j.lines {
		e := &j.lines[i]
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

// AbsentLines returns a line for each rule about a path that does not exist. A rule that
// would make such a path writable counts only in a writable directory: elsewhere nobody
// can create the path.
func (p *Plan) AbsentLines() []Path {
	lines := make([]Path, 0, len(p.Absent))
	for _, a := range p.Absent {
		if a.Rule.Access != policy.Write || p.Access(a.Path) == policy.Write {
			lines = append(lines, a.Line())
		}
	}
	return lines
}

// pin notes that a line, and the folders between it and the writable one around
// it, must not move: its rule is about the place where the file is now.
func (j *Judge) pin(p *Plan, e *Path) {
	if e.Kind == hostfs.Missing || e.Path == "/" {
		return
	}
	j.pins[e.Path] = e
	outer := p.enclosing(e.Path)
	if outer.Access != policy.Write || e.Access == policy.Write && e.shownBy(outer) {
		return
	}
	for _, dir := range pathx.Between(outer.Path, e.Path) {
		if j.pins[dir] == nil {
			j.pins[dir] = e
		}
	}
}

// shownBy reports whether the line shows the very file that the line around it would
// show at that place. A persisted, private or bound path does not: what it covers must
// not get another name.
func (e *Path) shownBy(outer *Path) bool {
	return e.Content == Host && outer.Content == Host && e.Source == pathx.Rebase(outer.Path, outer.Source, e.Path)
}

// Pinned reports whether the file at a path has to stay where it is, and the
// rule because of which.
func (j *Judge) Pinned(inside string) (Verdict, bool) {
	e := j.pins[inside]
	if e == nil {
		return Verdict{}, false
	}
	v := e.Verdict()
	v.Access = policy.Read
	return v, true
}

func (j *Judge) addGlob(g *Glob) {
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
func (j *Judge) Path(inside string) Verdict {
	inside = path.Clean(inside)
	line := j.line(inside, func(*Path) bool { return true })
	v := line.Verdict()
	if line.Origin.Untrusted {
		line = j.line(inside, (*Path).trusted)
	}
	for at := inside; len(at) >= len(line.Path) && at != "/"; at = path.Dir(at) {
		for _, p := range j.named[path.Base(at)] {
			v = p.tighten(v, &line, at)
		}
		for _, p := range j.other {
			v = p.tighten(v, &line, at)
		}
	}
	return v
}

// line is the longest line around a path that counts.
func (j *Judge) line(inside string, counts func(*Path) bool) Path {
	for p := inside; ; p = path.Dir(p) {
		if e := j.byPath[p]; e != nil && counts(e) {
			return *e
		}
		if p == "/" {
			return Path{Path: "/", Access: policy.Hidden, Content: Empty, Kind: hostfs.Dir}
		}
	}
}

func (e *Path) trusted() bool { return !e.Origin.Untrusted }

// Verdict is what the line says of a path that no other line and no pattern is about.
func (e *Path) Verdict() Verdict {
	subject := e.Path
	if e.Written != "" {
		subject = e.Written
	}
	return Verdict{Access: e.Access, Rule: e.rule(), Subject: subject, Reason: e.Reason, Origin: e.Origin, At: e.Path}
}

// The rules that are asked for by name.
const (
	ruleProtect   = "paths.protect"
	ruleRead      = "paths.read"
	ruleHideFound = "paths.hide_found"
)

func (e *Path) rule() string {
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

// tighten applies the pattern, if it matches at, to what is known so far.
func (p *pattern) tighten(v Verdict, line *Path, at string) Verdict {
	if p.Access >= v.Access || at == line.Path && p.yieldsTo(line) {
		return v
	}
	if !p.matches(at) || p.excepted(line.Path, at) {
		return v
	}
	return Verdict{Access: p.Access, Rule: p.rule(), Subject: p.Pattern, Reason: p.Reason, Origin: p.Origin, At: at}
}

func (g *Glob) rule() string {
	if g.Access == policy.Read {
		return ruleProtect
	}
	return "paths.hide"
}

// yieldsTo reports whether the pattern gives way to a line about the very path
// that it matches. A preset's pattern also does to a preset's line: whoever works
// in a folder named like one that presets protect has asked for that folder.
func (p *pattern) yieldsTo(line *Path) bool {
	return line.Origin.Layer > p.Origin.Layer || line.Access == policy.Write && p.Origin.Layer <= policy.LayerPreset
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

// Guarded returns the writable directories and files of the host. Mounts and Landlock
// give a whole tree or none of it; in these paths, whoever enforces the plan has to
// judge every change by its name: for patterns, for paths that do not exist yet, and
// for what git outside would run. A private directory around one of them is guarded
// with it, because its rights would hold for what is in it.
func (p *Plan) Guarded() []string {
	var roots []string
	for i := range p.Paths {
		e := &p.Paths[i]
		if e.writableHost() || e.Access == policy.Write && e.Content == Empty && p.holdsWritable(e.Path) {
			roots = append(roots, e.Path)
		}
	}
	return roots
}

// writableHost reports whether the line lets a directory or a file of the host be
// changed. Devices, pipes and sockets are used, not changed.
func (e *Path) writableHost() bool {
	return e.Access == policy.Write && e.Content == Host && (e.Kind == hostfs.Dir || e.Kind == hostfs.File)
}

// JudgesNames reports whether the plan has rules that hold only if the name of
// every file is judged when it is used, or asks about what others refuse. Wherever
// the host's files can be changed, it has: see Guarded.
func (p *Plan) JudgesNames() bool {
	return p.Asks || len(p.Globs) > 0 || slices.ContainsFunc(p.Paths, func(e Path) bool { return e.writableHost() })
}

// holdsWritable reports whether something of the host below a path can be changed.
func (p *Plan) holdsWritable(path string) bool {
	for i := range p.Paths {
		if e := &p.Paths[i]; e.writableHost() && e.Path != path && pathx.Within(path, e.Path) {
			return true
		}
	}
	return false
}

// HidesByPattern reports whether a pattern hides something: then each file has
// to be judged before it is read.
func (p *Plan) HidesByPattern() bool {
	return slices.ContainsFunc(p.Globs, func(g Glob) bool { return g.Access == policy.Hidden })
}
