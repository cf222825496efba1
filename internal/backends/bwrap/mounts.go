package bwrap

import (
	"fmt"
	"sort"
	"strconv"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// mounts adds the mounts, shallowest path first, so that a deeper line is mounted on top of a
// shallower one.
func (c *compiler) mounts() {
	lines := c.withPins()
	for _, e := range lines {
		c.mount(e)
	}
	c.sealEmpty(lines)
	c.sealProc(lines)
}

// sealProc makes /proc read-only for root. Its files belong to root, even in a user namespace:
// a program that root writes to sys/kernel/core_pattern there runs outside, as root.
// bubblewrap mounts such folders read-only only if the folder itself is writable, which sys is
// not.
func (c *compiler) sealProc(lines []plan.Path) {
	if !c.root {
		return
	}
	for _, e := range lines {
		if e.Content == plan.Proc {
			c.add("--remount-ro", e.Path)
		}
	}
}

// withPins adds the folders that have to be mount points of their own, see plan.Pins.
func (c *compiler) withPins() []plan.Path {
	lines := append(c.plan.ByDepth(), c.plan.PinLines(c.holdsFolders)...)
	sort.SliceStable(lines, func(i, j int) bool { return pathx.Depth(lines[i].Path) < pathx.Depth(lines[j].Path) })
	return lines
}

// holdsFolders reports whether only the broker can move files in a writable folder.
func (c *compiler) holdsFolders(writable string) bool {
	d := program.Domain{Plan: c.plan, Snap: c.snap, Guards: c.plan.Guarded(), Brokered: c.plan.JudgesNames()}
	return c.landlock && d.Brokered && d.HoldsFolders(writable)
}

func (c *compiler) mount(e plan.Path) {
	switch e.Content {
	case plan.Host:
		c.bind(e)
	case plan.Empty:
		c.empty(e)
	case plan.Proc:
		c.add("--proc", e.Path)
		for _, name := range program.HiddenInProc(c.snap) {
			c.add("--ro-bind", "/dev/null", e.Path+"/"+name)
		}
	case plan.Devices:
		c.add("--dev", e.Path)
		// Root could change the device nodes, which are the host's. bubblewrap's --remount-ro
		// would make them unusable.
		c.launch.SealNodes = c.root
		c.sized("--perms", "1777", "--tmpfs", e.Path+"/shm")
	case plan.Text:
		c.add("--perms", "0644", "--ro-bind-data", c.data([]byte(e.Text)), e.Path)
	case plan.Link:
		c.link(e)
	}
}

// link makes a symbolic link. A link of the host that has to be protected cannot be: a mount
// on it would be mounted on its target.
func (c *compiler) link(e plan.Path) {
	if e.Protect && c.landlock {
		return // the guard checks names, so that nobody can replace it
	}
	if e.Protect {
		c.gap(backend.Gap{Rule: "paths.protect", Subject: e.Path, Origin: e.Origin,
			Reason: "a rule goes through this symbolic link, and bubblewrap cannot keep a link from being replaced",
			Fix:    "name where it leads, " + e.Target + ", instead"})
		return
	}
	c.add("--symlink", e.Target, e.Path)
}

// bind shows a path of the host.
func (c *compiler) bind(e plan.Path) {
	if e.Kind == hostfs.Missing {
		return // a mount would have to create it; the guard protects it
	}
	c.launch.CreateDirs = append(c.launch.CreateDirs, e.MadeFirst()...)
	option := "--ro-bind"
	if e.Access == policy.Write {
		option = "--bind"
	}
	if !c.bwrap.Has("bind-fd") {
		c.add(option, e.Source, e.Path)
		return
	}
	fd := c.file(backend.File{Kind: backend.Source, Path: e.Source, Want: e.Kind, Origin: e.Origin})
	c.add(option+"-fd", strconv.Itoa(fd), e.Path)
}

// empty hides a path, or makes a private folder.
func (c *compiler) empty(e plan.Path) {
	if e.Create {
		c.launch.CreateDirs = append(c.launch.CreateDirs, e.Source)
	} else if e.Access == policy.Hidden && e.Path != "/" {
		c.cover(e)
	}
	switch {
	case e.Kind != hostfs.Dir:
		// A device node on a mount without devices cannot be opened, not even by root, and the
		// error shows that. An empty file would look like real content.
		c.add("--ro-bind", "/dev/null", e.Path)
	case e.Path == "/":
		// bubblewrap starts from an empty root.
	case e.Access == policy.Write:
		c.sized("--perms", fmt.Sprintf("%04o", e.FolderMode()), "--tmpfs", e.Path)
	default:
		c.add("--perms", "0755", "--tmpfs", e.Path)
	}
}

// sized limits the size of a private folder, which is in memory, to the memory limit.
func (c *compiler) sized(words ...string) {
	if limit := c.plan.Limit(plan.LimitMemory); limit > 0 && c.bwrap.Has("size") {
		c.add("--size", strconv.FormatInt(limit, 10))
	}
	c.add(words...)
}

// cover records that a hidden path has to exist: otherwise bubblewrap would create it, on the
// host if it is writable there.
func (c *compiler) cover(e plan.Path) {
	around := c.enclosing(e.Path)
	if around.Content == plan.Host {
		c.launch.MustExist = append(c.launch.MustExist, pathx.Rebase(around.Path, around.Source, e.Path))
	}
}

// enclosing returns the line around a path.
func (c *compiler) enclosing(p string) plan.Path {
	best := plan.Path{Path: "/", Content: plan.Empty}
	for _, e := range c.plan.Paths {
		if e.Path != p && pathx.Within(e.Path, p) && len(e.Path) >= len(best.Path) {
			best = e
		}
	}
	return best
}

// sealEmpty makes the empty folders read-only after everything is mounted in them. A folder
// that a rule hides also cannot be listed.
func (c *compiler) sealEmpty(lines []plan.Path) {
	for _, e := range lines {
		if e.Content != plan.Empty || e.Kind != hostfs.Dir || e.Access == policy.Write {
			continue
		}
		if e.Access == policy.Hidden && e.Origin.Layer != policy.LayerBuiltin {
			c.add("--chmod", c.maskMode(e.Path), e.Path)
		}
		c.add("--remount-ro", e.Path)
	}
}

// maskMode returns the mode of a hidden folder. It can be searched if something in it is
// shown.
func (c *compiler) maskMode(p string) string {
	for _, e := range c.plan.Paths {
		if e.Path != p && pathx.Within(p, e.Path) {
			return "0111"
		}
	}
	return "0000"
}

// gaps lists what this bubblewrap cannot do.
func (c *compiler) gaps() {
	var l program.GapList
	l.Review(c.plan, "bubblewrap shows folders copy-on-write only from version 0.11.0 on, and cloche does not use that")
	c.launch.Gaps = append(c.launch.Gaps, l.List()...)
	if !c.bwrap.Has("bind-fd") {
		c.gap(backend.Gap{Rule: "paths", Reason: fmt.Sprintf("bubblewrap %s looks sources up by name a second time, so a folder swapped in between is shown instead", c.bwrap.Version),
			Fix: "install a bubblewrap that has --bind-fd"})
	}
}
