package resolve

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// ruleName is a path rule in the words of a policy file.
func ruleName(r policy.PathRule) string {
	switch {
	case r.Protect:
		return "paths.protect"
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
	if b.policy.Home.Hidden {
		b.pathRule(policy.PathRule{Path: "~", Access: policy.Hidden, Optional: true, Reason: "home.visible is false", Origin: b.policy.Home.Origin})
	}
	for _, r := range b.policy.Paths {
		b.pathRule(r)
		for _, other := range b.otherHomes(r) {
			b.pathRule(other)
		}
	}
}

// otherHomes are the rules that a rule about the caller's secrets stands for in
// other home folders: that of the user database, where HOME says another, and
// for root those of everybody, since root may read them all.
func (b *builder) otherHomes(r policy.PathRule) []policy.PathRule {
	if r.Access != policy.Hidden || !strings.Contains(r.Path, "~") {
		return nil
	}
	var out []policy.PathRule
	for _, home := range b.snap.Homes {
		vars := b.vars
		vars.Home = home
		p, err := pathx.Expand(r.Path, vars)
		if err != nil || !pathx.Within(home, p) || p == home {
			continue
		}
		other := r
		other.Path, other.Optional = p, true
		out = append(out, other)
	}
	return out
}

func (b *builder) pathRule(r policy.PathRule) {
	p, ok := b.expandRule(r)
	if !ok {
		return
	}
	// Also where a file has that very name: a command could make one to be rid
	// of the pattern at the next run.
	glob := lasting(r) && pathx.IsGlob(r.Path)
	if glob {
		b.plan.Globs = append(b.plan.Globs, plan.Glob{Pattern: p, Access: r.Access, Reason: r.Reason, Origin: r.Origin})
	}
	real, err := b.follow(p)
	if err != nil {
		b.fail(&PolicyError{Rule: ruleName(r), Path: r.Path, Reason: err.Error(), Origin: r.Origin})
		return
	}
	if real.missing() {
		if glob {
			return
		}
		b.missingRule(r, real)
		return
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

// lasting reports whether a rule has to hold for files that are made later.
func lasting(r policy.PathRule) bool { return r.Access == policy.Hidden || r.Protect }

// expandRule expands the path of a rule. A pattern that begins with "**" is
// relative to nothing: it holds at any depth.
func (b *builder) expandRule(r policy.PathRule) (string, bool) {
	if lasting(r) && strings.HasPrefix(r.Path, "**/") {
		return "/" + r.Path, true
	}
	var unset *pathx.UnsetError
	if _, err := pathx.Expand(r.Path, b.vars); lasting(r) && !r.Optional && errors.As(err, &unset) {
		// Dropping a rule that takes away would open what it is about.
		b.fail(&PolicyError{Rule: ruleName(r), Path: r.Path, Origin: r.Origin, Reason: unset.Name + " is not set, so it is not known what to keep from the command",
			Fix: fmt.Sprintf("set it, or write %q if there may be nothing to keep", "?"+r.Path)})
		return "", false
	}
	return b.expand(ruleName(r), r.Path, r.Origin)
}

// missingRule decides about a rule whose path does not exist.
func (b *builder) missingRule(r policy.PathRule, real realPath) {
	switch {
	case r.Protect && !real.denied:
		b.add(candidate{links: real.links, Path: plan.Path{
			Path: real.path, Source: real.path, Kind: host.Missing, Access: policy.Read,
			Protect: true, Written: written(r.Path, real.path), Reason: r.Reason, Origin: r.Origin,
		}})
	case real.denied && lasting(r):
		b.notice(plan.NoticeSkipped, fmt.Sprintf("%s %q: the caller may not look there itself", ruleName(r), r.Path), r.Origin)
	case r.Optional:
		if r.Access == policy.Hidden {
			b.plan.Absent = append(b.plan.Absent, plan.Path{Path: real.path, Content: plan.Empty, Kind: host.Missing,
				Written: written(r.Path, real.path), Reason: r.Reason, Origin: r.Origin})
		}
		b.notice(plan.NoticeSkipped, fmt.Sprintf("%s %q: no such file or folder", ruleName(r), r.Path), r.Origin)
	default:
		e := &PolicyError{Rule: ruleName(r), Path: r.Path, Reason: "no such file or folder", Origin: r.Origin,
			Fix: fmt.Sprintf("create it, or write %q if it may be missing", "?"+r.Path)}
		if real.denied {
			e.Reason, e.Fix = "permission denied", "grant a path that you may look at yourself"
		}
		b.fail(e)
	}
}

// expand expands one path form. ok is false where the entry is dropped or wrong.
func (b *builder) expand(rule, p string, o policy.Origin) (out string, ok bool) {
	out, err := pathx.Expand(p, b.vars)
	var unset *pathx.UnsetError
	switch {
	case errors.As(err, &unset):
		b.notice(plan.NoticeDropped, fmt.Sprintf("%s %q: %s is not set", rule, p, unset.Name), o)
		return "", false
	case err != nil:
		b.fail(&PolicyError{Rule: rule, Path: p, Reason: err.Error(), Origin: o})
		return "", false
	}
	return out, true
}

// written keeps the path as a rule has it where that says more.
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
		src, ok := b.expand("binds", bind.Source, bind.Origin)
		if !ok {
			continue
		}
		real, err := b.follow(src)
		if err != nil {
			b.fail(&PolicyError{Rule: "binds", Path: bind.Source, Reason: err.Error(), Origin: bind.Origin})
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
		b.add(candidate{links: real.links, Path: plan.Path{
			Path: target, Source: real.path, Kind: real.info.Kind, Access: access,
			Written: written(bind.Source, real.path), Origin: bind.Origin,
		}})
	}
}

func (b *builder) missingBind(bind policy.Bind) {
	if bind.Optional {
		b.notice(plan.NoticeSkipped, fmt.Sprintf("binds %q: no such file or folder", bind.Source), bind.Origin)
		return
	}
	b.fail(&PolicyError{Rule: "binds", Path: bind.Source, Reason: "no such file or folder", Origin: bind.Origin,
		Fix: fmt.Sprintf("create it, or write %q if it may be missing", "?"+bind.Source)})
}

// persist gives each persisted folder its place in cloche's own store. The
// store is per workspace: two projects never share a folder.
func (b *builder) persist() {
	for _, p := range b.policy.Persist {
		at, ok := b.expand("persist", p.Path, p.Origin)
		if !ok {
			continue
		}
		real, err := b.follow(at)
		if err != nil {
			b.fail(&PolicyError{Rule: "persist", Path: p.Path, Reason: err.Error(), Origin: p.Origin})
			continue
		}
		if !real.missing() && real.info.Kind != host.Dir {
			b.fail(&PolicyError{Rule: "persist", Path: p.Path, Reason: "is a " + kindName(real.info.Kind) + ", not a folder", Origin: p.Origin})
			continue
		}
		b.add(candidate{links: real.links, Path: plan.Path{
			Path: real.path, Source: b.persistStore(real.path), Kind: host.Dir, Access: policy.Write,
			Create: true, Written: written(p.Path, real.path), Origin: p.Origin,
		}})
	}
}

func (b *builder) persistStore(p string) string {
	return path.Join(b.snap.Dirs.Data, "persist", storeName(b.plan.Workspace), storeName(p))
}

// settle chooses one line for each path and leaves out those that say nothing
// new.
func (b *builder) settle() {
	lines := map[string]candidate{}
	for _, c := range b.candidates {
		if !c.Origin.Untrusted && !c.lowers {
			choose(lines, c)
		}
	}
	b.checkLocked(lines)
	b.checkKernel()
	b.lower(lines)
	b.tighten(lines)
	mirror(lines)
	for _, p := range slices.Sorted(maps.Keys(lines)) {
		b.plan.Paths = append(b.plan.Paths, lines[p].Path)
	}
	b.dropAbsentProtection()
	b.dropAbsentOwn()
	b.dropRedundant()
}

// choose keeps the stronger of two lines for one path: a locked one, then the
// one of the higher layer, then the stricter one.
func choose(lines map[string]candidate, c candidate) {
	old, ok := lines[c.Path.Path]
	if !ok || stronger(c, old) {
		lines[c.Path.Path] = c
	}
}

func stronger(a, b candidate) bool {
	if a.locked != b.locked {
		return a.locked
	}
	if a.Origin.Layer != b.Origin.Layer {
		return a.Origin.Layer > b.Origin.Layer
	}
	return a.Access < b.Access
}

// checkLocked refuses rules that would open cloche's own files.
func (b *builder) checkLocked(lines map[string]candidate) {
	var hidden []string
	for p, l := range lines {
		if l.locked && l.Access == policy.Hidden {
			hidden = append(hidden, p)
		}
	}
	slices.Sort(hidden)
	for _, c := range b.candidates {
		if c.locked || c.Origin.Layer == policy.LayerBuiltin || c.Access == policy.Hidden || c.Create {
			continue
		}
		for _, p := range hidden {
			if pathx.Within(p, c.Source) {
				b.fail(&PolicyError{Rule: "paths", Path: orPath(c.Written, c.Source), Origin: c.Origin,
					Reason: "lies in " + p + ", where cloche keeps its own files; they are never opened to a command",
					Fix:    "remove the entry"})
			}
		}
	}
}

// lower applies the lines that only take away.
func (b *builder) lower(lines map[string]candidate) {
	all := plan.Plan{}
	for _, c := range lines {
		all.Paths = append(all.Paths, c.Path)
	}
	for _, c := range b.candidates {
		if c.lowers && c.Access < all.Access(c.Path.Path) {
			lines[c.Path.Path] = c
		}
	}
}

// kernelTrees are where the kernel shows itself and its devices as files. The
// command has its own /proc and /dev; /sys is read-only.
var kernelTrees = []string{"/proc", "/dev", "/sys"}

// checkKernel refuses rules that would show the host's.
func (b *builder) checkKernel() {
	for _, c := range b.candidates {
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

// kernelTree is the kernel's tree that a path lies in, or empty.
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

// tighten applies the rules of untrusted files: each may only take away.
func (b *builder) tighten(lines map[string]candidate) {
	trusted := plan.Plan{}
	for _, c := range lines {
		trusted.Paths = append(trusted.Paths, c.Path)
	}
	for _, c := range b.candidates {
		if !c.Origin.Untrusted {
			continue
		}
		have := given(&trusted, c.Path)
		if c.Access > have {
			b.ignored(c, have)
			continue
		}
		old, ok := lines[c.Path.Path]
		if !ok || (!old.locked && c.Access < old.Access) {
			lines[c.Path.Path] = c
		}
	}
}

// given is the access that the trusted rules give to what a line would show. A
// private folder gives none: it stands in for the host's folder of that name,
// which the line would bring back.
func given(trusted *plan.Plan, line plan.Path) policy.Access {
	around := trusted.Lookup(line.Path)
	if around.Content != plan.Host || pathx.Rebase(around.Path, around.Source, line.Path) != line.Source {
		return policy.Hidden
	}
	return around.Access
}

func (b *builder) ignored(c candidate, have policy.Access) {
	if c.Protect {
		return // there is nothing that could be written
	}
	b.notice(plan.NoticeIgnored, fmt.Sprintf("%s of %q asks for more than the trusted policy gives (%s); run `cloche policy trust` to allow it",
		c.Access, orPath(c.Written, c.Path.Path), have), c.Origin)
}

// dropAbsentProtection leaves out the protection of paths that do not exist
// and that nothing inside could create.
func (b *builder) dropAbsentProtection() {
	kept := b.plan.Paths[:0:0]
	for _, e := range b.plan.Paths {
		if e.Kind == host.Missing && !b.writableAround(e.Path) {
			b.notice(plan.NoticeSkipped, fmt.Sprintf("paths.protect %q: does not exist, and nothing inside can create it", orPath(e.Written, e.Path)), e.Origin)
			continue
		}
		kept = append(kept, e)
	}
	b.plan.Paths = kept
}

// dropAbsentOwn leaves out folders of cloche's own that do not exist and that
// nothing inside could create: making them would leave them behind.
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
	return around.Access == policy.Write && around.Content == plan.Host && !around.Create
}

// dropRedundant leaves out lines that repeat what the line around them says.
func (b *builder) dropRedundant() {
	kept := b.plan.Paths[:0:0]
	for _, e := range b.plan.Paths {
		if !b.redundant(e) {
			kept = append(kept, e)
		}
	}
	b.plan.Paths = kept
}

func (b *builder) redundant(e plan.Path) bool {
	if e.Path == "/" || e.Kind == host.Missing {
		return false
	}
	around := b.plan.Lookup(path.Dir(e.Path))
	if e.Access == policy.Hidden {
		// Neither a private nor a persisted folder shows what the host has there.
		return around.Access == policy.Hidden || around.Content == plan.Empty || around.Create
	}
	return e.Content == plan.Host && around.Content == plan.Host && around.Access == e.Access && pathx.Rebase(around.Path, around.Source, e.Path) == e.Source
}
