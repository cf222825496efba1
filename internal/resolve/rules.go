package resolve

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// ruleName returns the name of a path rule, as in a policy file.
func ruleName(r *policy.PathRule) string {
	switch {
	case r.Protect:
		return "paths.protect"
	case r.Found:
		return "paths.hide_found"
	case r.Access == policy.Hidden:
		return "paths.hide"
	case r.Access == policy.Read:
		return "paths.read"
	default:
		return "paths.write"
	}
}

// pathRules turns the policy's path rules into candidates.
func (b *builder) pathRules() {
	b.findHomes()
	if b.policy.Home.Hidden {
		b.pathRule(&policy.PathRule{Path: "~", Access: policy.Hidden, Optional: true, Reason: "home.visible is false", Origin: b.policy.Home.Origin})
	}
	moved := b.movedFolders()
	// A third of the presets' rules are patterns, and most others are about files that a
	// machine lacks.
	b.plan.Globs = slices.Grow(b.plan.Globs, len(b.policy.Paths)*3/8)
	b.plan.Absent = slices.Grow(b.plan.Absent, len(b.policy.Paths)*3/4*(1+len(b.homes)))
	for i := range b.policy.Paths {
		r := &b.policy.Paths[i]
		if r.Found { // see foundFiles
			continue
		}
		b.inMovedFolders(r, moved)
		rest := presetInHome(r)
		if !b.absentIn(b.vars.Home, rest, r, false) {
			b.pathRule(r)
		}
		if len(b.homes) > 0 && r.Access == policy.Hidden && strings.IndexByte(r.Path, '~') >= 0 {
			b.inOtherHomes(r, rest)
		}
	}
}

// presetInHome returns the path below a home of a file that a preset hides, or "".
func presetInHome(r *policy.PathRule) string {
	if r.Access != policy.Hidden || !r.Optional || r.Origin.Layer != policy.LayerPreset {
		return ""
	}
	rest, ok := pathx.InHome(r.Path)
	if !ok || pathx.IsGlob(rest) {
		return ""
	}
	return rest
}

// absentIn adds a preset's rule about a file of a home to the plan's absent ones, if a listed
// folder does not have the file. It reports whether it did; the rule then needs no further
// work. place would have the same result and take longer, and the presets have hundreds of
// rules about files that most homes lack.
func (b *builder) absentIn(home, rest string, r *policy.PathRule, implied bool) bool {
	if rest == "" {
		return false
	}
	p := b.fs.lackedBelow(home, rest)
	if p != "" {
		b.plan.Absent = append(b.plan.Absent, plan.Absent{Path: p, Rule: r, Implied: implied})
	}
	return p != ""
}

// placeImplied places a rule that is derived from another one. Its path is expanded, may be
// missing, and is then not reported.
func (b *builder) placeImplied(r *policy.PathRule, glob bool) {
	r.Optional = true
	b.implied = true
	b.place(r, r.Path, glob)
	b.implied = false
}

// inOtherHomes applies a rule about the caller's secrets to other home folders: that of the
// user database, if HOME is another, and those of other users that contain the workspace.
func (b *builder) inOtherHomes(r *policy.PathRule, rest string) {
	vars := b.vars
	vars.Pattern = isPattern(r)
	for _, home := range b.homes {
		if b.absentIn(home, rest, r, true) {
			continue
		}
		vars.Home = home
		p, err := pathx.Expand(r.Path, vars)
		if vars.Pattern {
			home = pathx.Quote(home)
		}
		if err != nil || !pathx.Within(home, p) || p == home {
			continue
		}
		other := *r
		other.Path = p
		b.placeImplied(&other, vars.Pattern)
	}
}

func (b *builder) pathRule(r *policy.PathRule) {
	glob := isPattern(r)
	if p, ok := b.expandRule(r, glob); ok {
		b.place(r, p, glob)
	}
}

// place turns a rule, whose path is expanded, into a candidate. glob says whether the rule is
// a pattern that also applies to later files.
func (b *builder) place(r *policy.PathRule, p string, glob bool) {
	// The pattern is kept even if a file has exactly that name: a command could create such a
	// file to disable the pattern for the next run.
	if glob {
		b.addGlob(r, p)
		if strings.HasPrefix(p, "/**/") {
			return
		}
	}
	real, err := b.follow(p)
	if err != nil {
		b.fail(&PolicyError{Rule: ruleName(r), Path: r.Path, Reason: err.Error(), Origin: r.Origin})
		return
	}
	// A grant is for the exact path that a person saw. A process that can write around it may
	// have put a link there since.
	if r.Origin.Layer.Granted() && pathx.Literal(real.path) != r.Path {
		b.notice(plan.NoticeSkipped, fmt.Sprintf("%s %q: now leads to another file than when it was granted", ruleName(r), r.Path), r.Origin)
		return
	}
	if real.missing() {
		if glob {
			return
		}
		b.missingRule(r, &real)
		return
	}
	if r.Origin.Layer == policy.LayerPreset && r.Access == policy.Hidden && real.info.Kind == hostfs.Device {
		return // a variable of the user leads to /dev/null, which contains no secret
	}
	line := plan.Path{
		Path: real.path, Source: real.path, Kind: real.info.Kind, Access: r.Access,
		Protect: r.Protect, Written: written(r.Path, real.path), Reason: r.Reason, Origin: r.Origin,
	}
	if r.Access == policy.Hidden {
		line.Content, line.Source = plan.Empty, ""
	}
	b.add(candidate{Path: line, links: real.links})
}

// lasting reports whether a rule also applies to files that are created later.
func lasting(r *policy.PathRule) bool { return (r.Access == policy.Hidden || r.Protect) && !r.Found }

// expandRule expands the path of a rule.
func (b *builder) expandRule(r *policy.PathRule, glob bool) (string, bool) {
	vars := b.vars
	vars.Pattern = glob
	expand := pathx.Expand
	if lasting(r) && strings.HasPrefix(r.Path, "**/") {
		expand = pathx.ExpandAnywhere
	}
	p, err := expand(r.Path, vars)
	if err == nil {
		return p, true
	}
	if fault, ok := errors.AsType[*pathx.GlobError](err); ok {
		b.fail(&PolicyError{Rule: ruleName(r), Path: r.Path, Origin: r.Origin, Reason: fault.Reason, Fix: fault.Fix})
		return "", false
	}
	if unset, ok := errors.AsType[*pathx.UnsetError](err); ok && lasting(r) && !r.Optional {
		// Dropping a rule that takes access away would open its path.
		b.fail(&PolicyError{Rule: ruleName(r), Path: r.Path, Origin: r.Origin, Reason: unset.Name + " is not set, so it is not known what to keep from the command",
			Fix: fmt.Sprintf("set it, or write %q if there may be nothing to keep", "?"+r.Path)})
		return "", false
	}
	if relative, ok := errors.AsType[*pathx.RelativeError](err); ok && r.Origin.Layer <= policy.LayerTool && path.IsAbs(b.vars.Cwd) {
		// The rule follows a variable of a program, which starts in the working folder, too.
		b.fromFolder = true
		cwd := b.vars.Cwd
		if vars.Pattern {
			cwd = pathx.Quote(cwd)
		}
		return path.Join(cwd, relative.Path), true
	}
	b.failExpand(ruleName(r), r.Path, r.Origin, err)
	return "", false
}

// isPattern reports whether a rule is a pattern that also applies to files that are created
// later.
func isPattern(r *policy.PathRule) bool { return lasting(r) && pathx.IsGlob(r.Path) }

// missingRule decides about a rule whose path does not exist.
func (b *builder) missingRule(r *policy.PathRule, real *realPath) {
	switch {
	case r.Protect && !real.denied:
		b.add(candidate{links: real.links, Path: plan.Path{
			Path: real.path, Source: real.path, Kind: hostfs.Missing, Access: policy.Read,
			Protect: true, Optional: r.Optional, Written: written(r.Path, real.path), Reason: r.Reason, Origin: r.Origin,
		}})
	case r.Create && !real.denied && !r.Origin.Untrusted && b.mayMake(real.path):
		if err := b.cannotMake(real.path); err != nil && r.Optional {
			b.notice(plan.NoticeWarning, fmt.Sprintf("%s %q cannot be made, and the command does without it: %v", ruleName(r), r.Path, err), r.Origin)
			return
		}
		b.add(candidate{links: real.links, Path: plan.Path{Path: real.path, Source: real.path, Kind: hostfs.Dir, Access: policy.Write,
			Create: true, Written: written(r.Path, real.path), Reason: r.Reason, Origin: r.Origin}})
	case real.denied && lasting(r):
		b.notice(plan.NoticeSkipped, fmt.Sprintf("%s %q: the caller may not look there itself", ruleName(r), r.Path), r.Origin)
	case r.Optional:
		if r.Access != policy.Read && !b.mayBeMade(r, real.path) {
			b.plan.Absent = append(b.plan.Absent, plan.Absent{Path: real.path, Rule: r})
			if r.Access == policy.Hidden && (b.implied || r.Origin.Layer == policy.LayerPreset) {
				return // the presets name files that most machines lack; Absent records them
			}
		}
		b.notice(plan.NoticeSkipped, fmt.Sprintf("%s %q: no such file or folder", ruleName(r), r.Path), r.Origin)
	default:
		e := &PolicyError{Rule: ruleName(r), Path: r.Path, Reason: "no such file or folder", Origin: r.Origin,
			Fix: fmt.Sprintf("create it, or write %q if it may be missing", "?"+r.Path)}
		switch {
		case real.denied:
			e.Reason, e.Fix = "permission denied", "grant a path that you may look at yourself"
		case pathx.IsGlob(r.Path): // which is a name like any other here
			e.Fix = "write each path out: only what is hidden or protected is named by patterns"
		}
		b.fail(e)
	}
}

// mayMake reports whether the caller can create a folder: the closest existing folder above it
// belongs to the caller, and is not the root.
func (b *builder) mayMake(p string) bool {
	for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
		if info, err := b.fs.Lstat(dir); err == nil {
			own := b.snap.UID == 0 || info.UID == b.snap.UID && info.Mode&0o200 != 0
			return info.Kind == hostfs.Dir && own
		}
	}
	return false
}

// cannotMake returns why a folder that may be created cannot be, for example because its file
// system is read-only. For a recorded machine this is not known.
func (b *builder) cannotMake(p string) error {
	writer, ok := b.snap.FS.(hostfs.Writer)
	if !ok {
		return nil
	}
	for dir := path.Dir(p); ; dir = path.Dir(dir) {
		if _, err := b.fs.Lstat(dir); err == nil || dir == "/" {
			return writer.MayMake(dir)
		}
	}
}

// mayBeMade reports whether the command may create a hidden path that does not exist: the rule
// is a preset's and the path is in the workspace, so the new file would not be a secret of the
// user.
func (b *builder) mayBeMade(r *policy.PathRule, real string) bool {
	return r.Access == policy.Hidden && r.Origin.Layer == policy.LayerPreset && pathx.Within(b.vars.Workspace, real) && !pathx.Within(b.vars.Workspace, b.snap.Home)
}

// expand expands one path form. ok is false if the entry is dropped or wrong.
func (b *builder) expand(rule, p string, o policy.Origin) (out string, ok bool) {
	out, err := pathx.Expand(p, b.vars)
	if err != nil {
		b.failExpand(rule, p, o, err)
		return "", false
	}
	return out, true
}

// expandReal expands a path form and resolves its links. ok is false if the entry is dropped
// or wrong.
func (b *builder) expandReal(rule, p string, o policy.Origin) (real realPath, ok bool) {
	at, ok := b.expand(rule, p, o)
	if !ok {
		return real, false
	}
	real, err := b.follow(at)
	if err != nil {
		b.fail(&PolicyError{Rule: rule, Path: p, Reason: err.Error(), Origin: o})
	}
	return real, err == nil
}

// failExpand drops an entry whose variable is not set, with a notice, and reports one that is
// wrong.
func (b *builder) failExpand(rule, p string, o policy.Origin, err error) {
	if unset, ok := errors.AsType[*pathx.UnsetError](err); ok {
		b.notice(plan.NoticeDropped, fmt.Sprintf("%s %q: %s is not set", rule, p, unset.Name), o)
		return
	}
	b.fail(&PolicyError{Rule: rule, Path: p, Reason: err.Error(), Origin: o})
}

// written returns the path as written in the rule if it differs from the real one, else "".
func written(w, real string) string {
	if w == real {
		return ""
	}
	return w
}

func (b *builder) add(c candidate) { b.candidates = append(b.candidates, c) }

// binds turns bind entries into candidates at their targets.
func (b *builder) binds() {
	for _, bind := range b.policy.Binds {
		real, ok := b.expandReal("binds", bind.Source, bind.Origin)
		if !ok {
			continue
		}
		if real.missing() {
			b.missingBind(bind)
			continue
		}
		target := real.path
		if bind.Target != "" {
			if target, ok = b.expand("binds", bind.Target, bind.Origin); !ok {
				continue
			}
		}
		access := policy.Write
		if bind.ReadOnly {
			access = policy.Read
		}
		if git := b.gitDirAround(real.path); git != "" && access == policy.Write && target != real.path {
			b.fail(&PolicyError{Rule: "binds", Path: bind.Source, Origin: bind.Origin,
				Reason: "is a part of the git directory " + git + ", which cannot be guarded under another name",
				Fix:    "bind it read-only, or bind the whole git directory"})
			continue
		}
		b.add(candidate{links: real.links, Path: plan.Path{
			Path: target, Source: real.path, Kind: real.info.Kind, Access: access,
			Written: written(bind.Source, real.path), Origin: bind.Origin,
		}})
	}
}

// gitDirAround returns the git directory that a path is a part of, or "". The guard
// (internal/gitguard) recognizes hooks and settings by their names and by the
// directories around them. It does not recognize them under another name.
func (b *builder) gitDirAround(p string) string {
	for dir := path.Dir(p); dir != "/" && dir != "."; dir = path.Dir(dir) {
		isGit := b.exists(dir+"/HEAD") && (b.exists(dir+"/objects") && b.exists(dir+"/refs") || b.exists(dir+"/commondir"))
		if isGit || path.Base(dir) == ".git" {
			return dir
		}
	}
	return ""
}

func (b *builder) exists(p string) bool {
	_, err := b.fs.Lstat(p)
	return err == nil
}

func (b *builder) missingBind(bind policy.Bind) {
	if bind.Optional {
		b.notice(plan.NoticeSkipped, fmt.Sprintf("binds %q: no such file or folder", bind.Source), bind.Origin)
		return
	}
	b.fail(&PolicyError{Rule: "binds", Path: bind.Source, Reason: "no such file or folder", Origin: bind.Origin,
		Fix: fmt.Sprintf("create it, or write %q if it may be missing", "?"+bind.Source)})
}

// persist gives each persisted folder a place in cloche's own store. The store is per
// workspace: two projects never share a folder.
func (b *builder) persist() {
	if len(b.policy.Persist) == 0 {
		return
	}
	store := path.Join(b.snap.Dirs.Data, "persist", storeName(b.plan.Workspace))
	for _, p := range b.policy.Persist {
		real, ok := b.expandReal("persist", p.Path, p.Origin)
		if !ok {
			continue
		}
		if !real.missing() && real.info.Kind != hostfs.Dir {
			b.fail(&PolicyError{Rule: "persist", Path: p.Path, Reason: "is a " + kindName(real.info.Kind) + ", not a folder", Origin: p.Origin})
			continue
		}
		b.add(candidate{links: real.links, Path: plan.Path{
			Path: real.path, Source: path.Join(store, storeName(real.path)), Kind: hostfs.Dir, Access: policy.Write,
			Create: true, Written: written(p.Path, real.path), Origin: p.Origin,
		}})
	}
}
