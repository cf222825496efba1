package resolve

import (
	"fmt"
	"path"
	"slices"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// placeLinks adds the symbolic links on the way to granted paths, if the folder that contains
// them is not itself shown.
func (b *builder) placeLinks() {
	for _, l := range b.links {
		if l.path == "/" {
			continue
		}
		around := b.plan.Lookup(path.Dir(l.path))
		if around.Content != plan.Empty || b.hasLine(l.path) {
			continue
		}
		if !b.leadsInside(l) {
			continue
		}
		b.plan.Paths = append(b.plan.Paths, plan.Path{Path: l.path, Content: plan.Link, Target: l.target, Kind: hostfs.Symlink,
			Access: policy.Read, Origin: builtin("a link on the way to a granted path")})
	}
}

// leadsInside reports whether a link leads to something that is visible.
func (b *builder) leadsInside(l link) bool {
	real, err := b.fs.follow(l.path)
	if err != nil || real.missing() {
		return false
	}
	if b.plan.Access(real.path) != policy.Hidden {
		return true
	}
	for _, e := range b.plan.Paths {
		if e.Access != policy.Hidden && pathx.Within(real.path, e.Path) {
			return true
		}
	}
	return false
}

// lineOf returns the index of the plan's line for a path, or -1.
func (b *builder) lineOf(p string) int {
	for i := range b.plan.Paths {
		if b.plan.Paths[i].Path == p {
			return i
		}
	}
	return -1
}

func (b *builder) hasLine(p string) bool { return b.lineOf(p) >= 0 }

// makeMountPoints makes room for lines whose path the host does not have, such as a bind to
// /data on a machine without /data. Nothing may be created on the host, so the folder around
// it becomes an empty folder in which each of the host's entries is shown separately.
func (b *builder) makeMountPoints() {
	lines := slices.Clone(b.plan.Paths)
	slices.SortFunc(lines, byPath)
	for i := range lines {
		e := &lines[i]
		if e.Path == "/" || e.Kind == hostfs.Missing || e.Volatile || e.Create && !e.Persisted() {
			continue
		}
		b.makeRoom(*e)
	}
	if b.policy.Remap != "" {
		b.makeRoom(plan.Path{Path: path.Clean(b.policy.Remap), Kind: hostfs.Dir, Origin: b.policy.RemapOrigin})
	}
}

func (b *builder) makeRoom(e plan.Path) {
	around := b.plan.Lookup(path.Dir(e.Path))
	if around.Content != plan.Host {
		return
	}
	parts := append(pathx.Between(around.Path, e.Path), e.Path)
	at := around.Path
	for _, p := range parts {
		kind, known := b.kindAt(around, p)
		if known && (kind == hostfs.Dir) == (e.Kind == hostfs.Dir || p != e.Path) && kind != hostfs.Missing {
			at = p
			continue
		}
		if !b.makeMountPoint(around, e) {
			b.takeApart(around, at, e)
		}
		return
	}
}

// makeMountPoint lets the mount point of a persisted folder be created on the host, in a
// writable folder. Only presets for tools may do that: they name folders that the tool itself
// would create there.
func (b *builder) makeMountPoint(around, e plan.Path) bool {
	at := pathx.Rebase(around.Path, around.Source, e.Path)
	if !e.Persisted() || around.Access != policy.Write || e.Origin.Layer != policy.LayerTool || !b.mayMake(at) {
		return false
	}
	e.MountPoint = at
	b.put(e)
	return true
}

// kindAt returns the kind of the host's file at a path inside that a line shows.
func (b *builder) kindAt(around plan.Path, inside string) (host.Kind, bool) {
	info, err := b.fs.Lstat(pathx.Rebase(around.Path, around.Source, inside))
	if err != nil {
		return hostfs.Missing, false
	}
	return info.Kind, true
}

// takeApart shows the folders from around down to dir entry by entry.
func (b *builder) takeApart(around plan.Path, dir string, e plan.Path) {
	if around.Access == policy.Write {
		b.fail(&PolicyError{Rule: "binds", Path: e.Path, Origin: e.Origin,
			Reason: fmt.Sprintf("does not exist in the writable %s, and cloche creates nothing there", around.Path), Fix: "create it first"})
		return
	}
	chain := append(pathx.Between(around.Path, dir), dir)
	if dir != around.Path {
		chain = append([]string{around.Path}, chain...)
	}
	for _, d := range chain {
		if !b.split(around, d) {
			b.fail(&PolicyError{Rule: "binds", Path: e.Path, Origin: e.Origin,
				Reason: fmt.Sprintf("does not exist, and the entries of %s cannot be listed", d), Fix: "create it, or bind to a path that exists"})
			return
		}
	}
}

// split replaces one folder by an empty one that shows the same entries.
func (b *builder) split(around plan.Path, dir string) bool {
	source := pathx.Rebase(around.Path, around.Source, dir)
	names, err := b.fs.ReadDir(source)
	if err != nil {
		return false
	}
	origin := around.Origin
	b.put(plan.Path{Path: dir, Kind: hostfs.Dir, Access: policy.Read, Content: plan.Empty, Source: source, Origin: origin})
	for _, name := range names {
		p := path.Join(dir, name)
		if b.hasLine(p) {
			continue
		}
		info, err := b.fs.Lstat(path.Join(source, name))
		if err != nil {
			continue
		}
		line := plan.Path{Path: p, Source: path.Join(source, name), Kind: info.Kind, Access: around.Access, Origin: origin}
		if info.Kind == hostfs.Symlink {
			line.Content, line.Source, line.Target = plan.Link, "", info.Target
		}
		b.plan.Paths = append(b.plan.Paths, line)
	}
	return true
}

// remap moves the workspace, with every line in it, to its path inside. The workspace's own
// path is hidden: otherwise files that a rule hides or protects would be accessible there.
func (b *builder) remap() {
	to := path.Clean(b.policy.Remap)
	from := b.plan.Workspace
	if b.policy.Remap == "" || to == from {
		return
	}
	var reason, fix string
	switch git, held := b.gitDirAround(from), b.heldBy(to); {
	case !path.IsAbs(to) || pathx.Within(from, to) || pathx.Within(to, from):
		reason, fix = "has to be an absolute path that neither holds the workspace nor lies in it", "use /workspace"
	case git != "":
		reason = "the workspace is a part of the git directory " + git + ", which cannot be guarded under another name"
		fix = "remove remap, or name another folder with --workspace"
	case held != "":
		reason, fix = "would cover "+held+", which the sandbox has there", "use a path that nothing else needs, such as /workspace"
	}
	if reason != "" {
		b.fail(&PolicyError{Rule: "remap", Path: b.policy.Remap, Origin: b.policy.RemapOrigin, Reason: reason, Fix: fix})
		return
	}
	ws := b.plan.Lookup(from)
	if !b.hasLine(from) {
		b.plan.Paths = append(b.plan.Paths, plan.Path{Path: from, Source: pathx.Rebase(ws.Path, ws.Source, from), Kind: hostfs.Dir, Access: ws.Access, Origin: ws.Origin})
	}
	for i, e := range b.plan.Paths {
		if pathx.Within(from, e.Path) {
			b.plan.Paths[i].Path = pathx.Rebase(from, to, e.Path)
		}
	}
	for i, s := range b.plan.Sockets {
		if pathx.Within(from, s.Path) {
			b.plan.Sockets[i].Path = pathx.Rebase(from, to, s.Path)
		}
	}
	if left := b.plan.Lookup(from); left.Content == plan.Host && left.Access != policy.Hidden {
		b.plan.Paths = append(b.plan.Paths, plan.Path{Path: from, Kind: hostfs.Dir, Content: plan.Empty, Access: policy.Hidden, Origin: b.policy.RemapOrigin})
	}
	b.plan.Inside = to
	b.remapCommand(from, to)
	b.remapPatterns(from, to)
}

// heldBy returns a path at or below a folder that the sandbox needs: a folder of the system,
// or one that has a line. It is empty if there is none.
func (b *builder) heldBy(folder string) string {
	for _, s := range slices.Concat(systemFolders, []string{"/run", "/tmp"}) {
		if pathx.Within(folder, s) {
			return s
		}
	}
	i := slices.IndexFunc(b.plan.Paths, func(e plan.Path) bool { return pathx.Within(folder, e.Path) })
	if i < 0 {
		return ""
	}
	return b.plan.Paths[i].Path
}

func (b *builder) remapCommand(from, to string) {
	c := b.plan.Command
	if c == nil {
		return
	}
	if pathx.Within(from, c.Dir) {
		c.Dir = pathx.Rebase(from, to, c.Dir)
	}
	if pathx.Within(from, c.Path) {
		c.Path = pathx.Rebase(from, to, c.Path)
	}
}
