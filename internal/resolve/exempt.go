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

// addGlob adds a rule that is a pattern to the plan. A malformed pattern is an error, because
// it would match nothing and nobody would notice. The patterns of presets are known to be
// valid.
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

// exempt adds the policy's exemptions to the plan, with paths expanded and links resolved.
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

// exceptUnder returns the folders in which a pattern of a layer does not apply: those of
// exemptions in the same layer and in higher ones. All patterns of a layer share the list. A
// pattern that hides has no exceptions: a hidden file could be moved into such a folder and
// read there.
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

// remapPatterns moves patterns about the workspace together with the workspace, because names
// are checked as the command sees them. A pattern that matches the workspace through a
// wildcard in a folder around it is an error: it would silently stop to match.
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

// remapped returns the path inside for a path or pattern in the workspace.
func remapped(p, from, to string) string {
	if pathx.Within(from, p) {
		return pathx.Rebase(from, to, p)
	}
	return p
}

// fixedPart returns the folder that contains every match of an absolute pattern.
func fixedPart(pattern string) string {
	if i := strings.IndexAny(pattern, `*?[{\`); i >= 0 {
		pattern = pattern[:i]
	}
	return path.Dir(pattern + "x")
}

// movable are the folders of a home folder that a variable may have moved elsewhere.
var movable = []struct{ usual, variable string }{
	{"~/.config/", "XDG_CONFIG_HOME"},
	{"~/.local/share/", "XDG_DATA_HOME"},
	{"~/.local/state/", "XDG_STATE_HOME"},
	{"~/.cache/", "XDG_CACHE_HOME"},
}

// A movedFolder is one of them that was moved.
type movedFolder struct{ usual, now string }

// movedFolders returns the folders that are not in their usual place. A relative value is
// ignored, as the XDG specification requires.
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

// inMovedFolders applies a preset's rule about a secret also in the place to which variables
// have moved the folder around it. The rule for the usual place stays, because old files may
// still be there.
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

// givingBack returns the dropped lines that are needed after all: they say the same as the
// line around them, but give more access than a pattern leaves.
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

// noteLifted adds a notice that a line opens what a pattern protects or hides.
func (b *builder) noteLifted(e *plan.Path, v *plan.Decision) {
	b.notice(plan.NoticeInfo, fmt.Sprintf("%s: %s %s (%s) does not hold for it, because %s names it", orPath(e.Written, e.Path), v.Rule, v.Subject, v.Origin, e.Origin), e.Origin)
}

// noteLiftedAbsent does the same for paths that do not exist.
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
