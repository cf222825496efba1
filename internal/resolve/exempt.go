package resolve

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// addGlob takes over a rule that is a pattern. One that is malformed would match
// nothing, and nobody would know; those of the presets are known to be good.
func (b *builder) addGlob(r *policy.PathRule, pattern string) {
	if r.Origin.Layer != policy.LayerPreset {
		normal, err := pathx.NormalGlob(pattern)
		if err != nil {
			b.fail(&PolicyError{Rule: ruleName(r), Path: r.Path, Origin: r.Origin, Reason: "is no pattern: " + err.Reason, Fix: err.Fix})
			return
		}
		pattern = normal
	}
	b.plan.Globs = append(b.plan.Globs, plan.Glob{
		Pattern: pattern, Access: r.Access, ExceptUnder: b.exceptUnder(r.Access, r.Origin.Layer),
		Optional: r.Optional, Reason: r.Reason, Origin: r.Origin,
	})
}

// exempt puts the exemptions of the policy into the plan, with their paths
// expanded and their links followed.
func (b *builder) exempt() {
	for i := range b.policy.Exempt {
		e := &b.policy.Exempt[i]
		folder := e.Folder
		if !e.IsName() {
			real, ok := b.expandReal("paths.protect_unless_under", e.Folder, e.Origin)
			if !ok {
				continue
			}
			folder = real.path
		}
		b.plan.Exempt = append(b.plan.Exempt, plan.Exemption{Folder: folder, Reason: e.Reason, Origin: e.Origin})
	}
}

// exceptUnder are the folders in which a pattern of a layer does not hold: those
// of exemptions of the same layer and of higher ones. The patterns of a layer
// share the list. A pattern that hides has none: whatever is hidden could be moved
// into such a folder and read there.
func (b *builder) exceptUnder(a policy.Access, layer policy.Layer) []string {
	if a != policy.Read || len(b.plan.Exempt) == 0 {
		return nil
	}
	folders, ok := b.exempted[layer]
	if ok {
		return folders
	}
	for i := range b.plan.Exempt {
		if e := &b.plan.Exempt[i]; e.Origin.Layer >= layer {
			folders = append(folders, e.Folder)
		}
	}
	if b.exempted == nil {
		b.exempted = map[policy.Layer][]string{}
	}
	b.exempted[layer] = slices.Clip(folders)
	return b.exempted[layer]
}

// remapPatterns moves what is about names in the workspace along with it: names
// are judged as the command sees them. A pattern that reaches the workspace
// through a wildcard in a folder around it would silently hold no longer.
func (b *builder) remapPatterns(from, to string) {
	for i := range b.plan.Exempt {
		b.plan.Exempt[i].Folder = remapped(b.plan.Exempt[i].Folder, from, to)
	}
	for i := range b.plan.Absent {
		b.plan.Absent[i].Path = remapped(b.plan.Absent[i].Path, from, to)
	}
	b.exempted = nil
	in := pathx.Quote(from)
	for i := range b.plan.Globs {
		g := &b.plan.Globs[i]
		around := !pathx.Within(in, g.Pattern) && !strings.HasPrefix(g.Pattern, "/**/")
		if fixed := fixedPart(g.Pattern); around && pathx.Within(fixed, from) && fixed != from {
			b.fail(&PolicyError{Rule: "remap", Path: g.Pattern, Origin: g.Origin,
				Reason: "may match in the workspace by a wildcard in a folder around it, and remap takes the workspace to " + to,
				Fix:    "begin the pattern with urn:cloche:workspace/ or **/"})
			continue
		}
		g.Pattern = remapped(g.Pattern, in, pathx.Quote(to))
		g.ExceptUnder = b.exceptUnder(g.Access, g.Origin.Layer)
	}
}

// remapped is a path, or a pattern, of the workspace as it is seen inside.
func remapped(p, from, to string) string {
	if pathx.Within(from, p) {
		return pathx.Rebase(from, to, p)
	}
	return p
}

// fixedPart is the folder that every match of an absolute pattern lies in.
func fixedPart(pattern string) string {
	if i := strings.IndexAny(pattern, `*?[{\`); i >= 0 {
		pattern = pattern[:i]
	}
	return path.Dir(pattern + "x")
}

// movable are the folders of a home folder that a variable may have moved.
var movable = []struct{ usual, variable string }{
	{"~/.config/", "XDG_CONFIG_HOME"},
	{"~/.local/share/", "XDG_DATA_HOME"},
	{"~/.local/state/", "XDG_STATE_HOME"},
	{"~/.cache/", "XDG_CACHE_HOME"},
}

// A movedFolder is one of them that was moved.
type movedFolder struct{ usual, now string }

// movedFolders are those that are not where they usually are. A relative value
// is ignored, as the specification of these variables wants it.
func (b *builder) movedFolders() []movedFolder {
	var moved []movedFolder
	for _, m := range movable {
		now, _ := b.getenv(m.variable)
		usual, err := pathx.Expand(strings.TrimSuffix(m.usual, "/"), b.vars)
		if !strings.HasPrefix(now, "/") || err != nil || now == usual {
			continue
		}
		moved = append(moved, movedFolder{m.usual, now})
	}
	return moved
}

// inMovedFolders applies a preset's rule about a secret also to where variables
// have moved the folder around it. The usual place keeps its rule: it may still
// hold what it held before.
func (b *builder) inMovedFolders(r *policy.PathRule, moved []movedFolder) {
	if len(moved) == 0 || r.Access != policy.Hidden || r.Origin.Layer != policy.LayerPreset {
		return
	}
	glob := isPattern(r)
	for _, m := range moved {
		rest, ok := strings.CutPrefix(r.Path, m.usual)
		if !ok {
			continue
		}
		now := strings.TrimSuffix(m.now, "/")
		if glob {
			now = pathx.Quote(now)
		}
		other := *r
		other.Path, other.Optional = now+"/"+rest, true
		b.place(&other, other.Path, glob)
	}
}

// givingBack returns the lines that say the same as those around them, and more
// than a pattern leaves of it.
func (b *builder) givingBack(kept, repeated []plan.Path) []plan.Path {
	if len(b.plan.Globs) == 0 {
		return nil
	}
	var out []plan.Path
	var j *judge.Files
	for _, e := range repeated {
		if e.Access == policy.Hidden || e.Access == policy.Read && !b.plan.HidesByPattern() || e.Origin.Untrusted {
			continue
		}
		if j == nil {
			j = judge.NewFiles(&plan.Plan{Paths: kept, Globs: b.plan.Globs})
		}
		if v := j.Path(e.Path); v.Access < e.Access {
			out = append(out, e)
			b.noteLifted(&e, &v)
		}
	}
	b.noteLiftedAbsent(kept)
	return out
}

// noteLifted puts on record that a line opens what a pattern protects or hides.
func (b *builder) noteLifted(e *plan.Path, v *plan.Decision) {
	b.notice(plan.NoticeInfo, fmt.Sprintf("%s: %s %s (%s) does not hold for it, because %s names it", orPath(e.Written, e.Path), v.Rule, v.Subject, v.Origin, e.Origin), e.Origin)
}

// noteLiftedAbsent does so for paths that do not exist.
func (b *builder) noteLiftedAbsent(kept []plan.Path) {
	var j *judge.Files
	for _, a := range b.plan.Absent {
		if a.Rule.Access != policy.Write || a.Rule.Origin.Untrusted {
			continue
		}
		e := a.Line()
		if j == nil {
			j = judge.NewFiles(&plan.Plan{Paths: kept, Globs: b.plan.Globs})
		}
		if v := j.Path(e.Path); v.Access < policy.Write && pathx.IsGlob(v.Subject) {
			b.noteLifted(&e, &v)
		}
	}
}
