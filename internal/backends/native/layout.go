package native

import (
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A sealed folder is a private one that becomes read-only after it is filled.
type sealed struct {
	line  *plan.Path
	mount sysprog.Arg
}

// ofHost are the mount attributes for everything of the host: no devices and no setuid
// programs.
const ofHost = sysprog.MountAttrNoSuid | sysprog.MountAttrNoDev

const (
	emptyRecursive = sysprog.AtEmptyPath | sysprog.AtRecursive
	cloneTree      = sysprog.OpenTreeClone | sysprog.AtEmptyPath | sysprog.AtRecursive
	cloneOne       = sysprog.OpenTreeClone | sysprog.AtEmptyPath
)

// files mounts the file system.
func (c *compiler) files() error {
	c.cloneDevices()
	c.takeVoid()
	b := c.do("keep mounts to ourselves")
	b.MountSetattr(sysprog.Cwd(), "/", sysprog.AtRecursive, sysprog.MountAttr{Set: ofHost, Propagation: sysprog.MountPrivate})
	mask := b.CallResult("umask", sysprog.Const(0))
	lines := c.lines()
	first := c.besideReview(lines)
	for _, e := range first {
		c.cloneSource(e)
	}
	if err := c.review(); err != nil {
		return err
	}
	for _, e := range lines {
		if !slices.Contains(first, e) {
			c.cloneSource(e)
		}
	}
	c.makeRoot()
	c.makeStore()
	c.devices()
	for _, e := range lines {
		c.place(e)
	}
	c.sealFolders()
	if !c.inPlace() {
		c.pivot()
	}
	c.do("the caller's mask for new files").Call("umask", mask)
	return nil
}

// lines returns the lines of the plan with the pins, shallowest first. It leaves out the root
// and /dev, which are made before all others.
func (c *compiler) lines() []*plan.Path {
	lines := make([]*plan.Path, 0, len(c.plan.Paths))
	for i := range c.plan.Paths {
		if e := &c.plan.Paths[i]; e.Path != "/" && e.Content != plan.Devices && e.Kind != hostfs.Missing {
			lines = append(lines, e)
		}
	}
	pins := c.plan.PinLines(c.holdsFolders)
	for i := range pins {
		lines = append(lines, &pins[i])
	}
	slices.SortStableFunc(lines, func(a, b *plan.Path) int { return pathx.Depth(a.Path) - pathx.Depth(b.Path) })
	return lines
}

// inPlace reports whether the host's root stays the root. That is much cheaper than a new
// root, and as safe: the mounts on it cannot be removed without a capability that the command
// does not have.
func (c *compiler) inPlace() bool { return c.plan.Lookup("/").Content == plan.Host }

// noLinks prevents a look-up from following symbolic links. It needs Linux 5.6.
const noLinks = sysprog.ResolveNoSymlinks | sysprog.ResolveNoMagicLinks

// open opens a path with O_PATH and without following any symbolic link.
func open(b sysprog.Block, dir sysprog.Arg, p string) sysprog.Arg {
	return b.Openat2(dir, p, sysprog.OpenPath, noLinks)
}

// openLink opens a symbolic link itself.
func (c *compiler) openLink(b sysprog.Block, p string) sysprog.Arg {
	return b.Openat2(c.root, pathx.Rel("/", p), sysprog.OpenPath|sysprog.OpenNoFollow, noLinks)
}

// inside opens a path of the new file system.
func (c *compiler) inside(b sysprog.Block, p string) sysprog.Arg {
	return open(b, c.root, pathx.Rel("/", p))
}

// cloneSource clones what a line shows of the host, before anything is mounted over it.
func (c *compiler) cloneSource(e *plan.Path) {
	if e.Content != plan.Host {
		return
	}
	c.launch.CreateDirs = append(c.launch.CreateDirs, e.MadeFirst()...)
	b := tolerant(c.by(e.Origin, "take "+e.Source), e)
	fd, copied := c.copies[e.Source]
	if !copied {
		fd = open(b, sysprog.Cwd(), e.Source)
	}
	tree := b.OpenTree(fd, "", cloneTree)
	if !copied {
		b.Close(fd)
	}
	if e.Access != policy.Write {
		b.MountSetattr(tree, "", emptyRecursive, sysprog.MountAttr{Set: sysprog.MountAttrReadOnly})
	}
	c.trees[e.Path] = tree
}

// makeRoot makes the root of the new file system: the host's, read-only, or an empty one.
func (c *compiler) makeRoot() {
	line := c.plan.Lookup("/")
	if !c.inPlace() {
		b := c.by(line.Origin, "make an empty root")
		c.root = b.NewMount("tmpfs", ofHost, "mode=0755")
		// Any folder can be the mount point; /proc always exists.
		b.Attach(c.root, sysprog.Cwd(), "/proc")
		c.seal = append(c.seal, sealed{&line, c.root})
		return
	}
	b := c.by(line.Origin, "show the root")
	if line.Access != policy.Write {
		b.MountSetattr(sysprog.Cwd(), "/", sysprog.AtRecursive, sysprog.MountAttr{Set: sysprog.MountAttrReadOnly})
	}
	c.root = open(b, sysprog.Cwd(), "/")
}

// place mounts one line.
func (c *compiler) place(e *plan.Path) {
	b := c.by(e.Origin, e.Access.String()+" "+e.Path)
	c.makePoint(b, e)
	switch e.Content {
	case plan.Host:
		c.attach(tolerant(b, e), c.trees[e.Path], e.Path)
		c.keep(tolerant(b, e), e, c.trees[e.Path])
	case plan.Empty:
		c.empty(b, e)
	case plan.Proc:
		c.proc(b, e)
	case plan.Text:
		c.text(b, e)
	case plan.Link:
		c.link(b, e)
	case plan.Devices: // made before all others
	}
}

// tolerant returns a block whose steps ignore that a volatile line's path is gone.
func tolerant(b sysprog.Block, e *plan.Path) sysprog.Block {
	if !e.Volatile {
		return b
	}
	return b.Ignoring(sysprog.ENOENT, sysprog.EBADF)
}

// link makes a symbolic link, or protects one of the host: mounted on itself it can be
// followed, but neither removed nor replaced.
func (c *compiler) link(b sysprog.Block, e *plan.Path) {
	if !e.Protect {
		b.Symlinkat(e.Target, c.root, pathx.Rel("/", e.Path))
		return
	}
	fd := c.openLink(b, e.Path)
	tree := b.OpenTree(fd, "", cloneOne)
	b.MoveMount(tree, "", fd, "", sysprog.MoveMountFromEmptyPath|sysprog.MoveMountToEmptyPath)
	b.Close(fd)
	b.Close(tree)
}

// attach mounts a tree on a path.
func (c *compiler) attach(b sysprog.Block, tree sysprog.Arg, p string) {
	if c.isOurs(path.Dir(p)) {
		b.Attach(tree, c.root, pathx.Rel("/", p))
		return
	}
	at := c.inside(b, p)
	b.MoveMount(tree, "", at, "", sysprog.MoveMountFromEmptyPath|sysprog.MoveMountToEmptyPath)
	b.Close(at)
}

// isOurs reports whether nobody else can put a symbolic link on the way to an entry of the
// folder: the folder is the root, or a private folder in the root. Such a path need not be
// opened first; a link at its end is not followed.
func (c *compiler) isOurs(dir string) bool {
	line := c.plan.Lookup(dir)
	private := line.Content == plan.Empty || line.Content == plan.Devices
	return dir == "/" || private && path.Dir(line.Path) == "/"
}

// cover mounts a tree on a path and closes the tree's descriptor.
func (c *compiler) cover(b sysprog.Block, tree sysprog.Arg, p string) {
	c.attach(b, tree, p)
	b.Close(tree)
}

// makePoint makes the mount point of a line in a private folder. Elsewhere it exists: the
// resolver has made sure of that.
func (c *compiler) makePoint(b sysprog.Block, e *plan.Path) {
	around := c.around(e.Path)
	if around.Content != plan.Empty && around.Content != plan.Devices {
		return
	}
	for _, d := range pathx.Between(around.Path, e.Path) {
		c.mkdir(b, d)
	}
	switch {
	case e.Content == plan.Link || c.made[e.Path]:
	case e.Kind == hostfs.Dir:
		c.mkdir(b, e.Path)
	default:
		b.Mknodat(c.root, pathx.Rel("/", e.Path), 0o100444, 0)
	}
	c.made[e.Path] = true
}

func (c *compiler) mkdir(b sysprog.Block, p string) {
	if !c.made[p] {
		b.Mkdirat(c.root, pathx.Rel("/", p), 0o755)
		c.made[p] = true
	}
}

// around returns the line around a path.
func (c *compiler) around(p string) plan.Path {
	return c.plan.Lookup(path.Dir(p))
}

// empty hides a path, or makes a private folder.
func (c *compiler) empty(b sysprog.Block, e *plan.Path) {
	switch {
	case e.Create:
		c.launch.CreateDirs = append(c.launch.CreateDirs, e.Source)
	case e.Access == policy.Hidden && !e.Volatile && c.around(e.Path).Content == plan.Host:
		around := c.around(e.Path)
		c.launch.MustExist = append(c.launch.MustExist, pathx.Rebase(around.Path, around.Source, e.Path))
	}
	switch {
	case e.Volatile:
		void := b.OpenTree(c.store, storedVoid, sysprog.OpenTreeClone)
		c.attach(tolerant(b, e), void, e.Path)
		b.Close(void)
	case e.Kind != hostfs.Dir:
		c.cover(b, b.OpenTree(c.store, storedVoid, sysprog.OpenTreeClone), e.Path)
	case e.Access == policy.Write:
		tree := c.newFolder(b, e.FolderMode())
		c.attach(b, tree, e.Path)
		c.keep(b, e, tree)
	case c.holds(e.Path):
		c.folder(b, e)
	case c.closed(e):
		c.cover(b, b.OpenTree(c.shown, storedMask, sysprog.OpenTreeClone), e.Path)
	default:
		c.cover(b, b.OpenTree(c.shown, storedEmpty, sysprog.OpenTreeClone), e.Path)
	}
}

// closed reports whether a hidden folder cannot be listed: a rule hides it, not cloche's
// baseline.
func (c *compiler) closed(e *plan.Path) bool {
	return e.Access == policy.Hidden && e.Origin.Layer != policy.LayerBuiltin
}

// holds reports whether a line is below a path.
func (c *compiler) holds(p string) bool {
	for i := range c.plan.Paths {
		if e := &c.plan.Paths[i]; e.Path != p && pathx.Within(p, e.Path) {
			return true
		}
	}
	return false
}

// folder makes an empty folder that contains other lines.
func (c *compiler) folder(b sysprog.Block, e *plan.Path) {
	tree := c.newFolder(b, 0o755)
	c.attach(b, tree, e.Path)
	c.seal = append(c.seal, sealed{e, tree})
}

func (c *compiler) proc(b sysprog.Block, e *plan.Path) {
	attrs := uint64(ofHost | sysprog.MountAttrNoExec)
	if c.snap.UID == 0 {
		// The files of /proc belong to root even in a user namespace: a program that root
		// writes to sys/kernel/core_pattern runs outside.
		attrs |= sysprog.MountAttrReadOnly
	}
	mount := b.NewMount("proc", attrs)
	c.attach(b, mount, e.Path)
	if !c.bareProc {
		c.hideInProc(b, mount)
	}
	c.keep(b, e, mount)
}

// hideInProc hides files in a /proc by mounting the null device on them.
func (c *compiler) hideInProc(b sysprog.Block, proc sysprog.Arg) {
	for _, name := range program.HiddenInProc(c.snap) {
		null := b.OpenTree(c.root, "dev/null", sysprog.OpenTreeClone)
		b.MoveMount(null, "", proc, name, sysprog.MoveMountFromEmptyPath)
		b.Close(null)
	}
}

// text shows a file with the line's text.
func (c *compiler) text(b sysprog.Block, e *plan.Path) {
	name := "text" + strings.ReplaceAll(e.Path, "/", "-")
	fd := b.Openat(c.store, name, sysprog.OpenWrite|sysprog.OpenCreate|sysprog.OpenExclusive, 0o644)
	b.Write(fd, e.Text)
	b.Close(fd)
	c.cover(b, b.OpenTree(c.shown, name, sysprog.OpenTreeClone), e.Path)
}

// sealFolders makes the empty folders read-only. A folder that a rule hides also cannot be
// listed.
func (c *compiler) sealFolders() {
	for _, s := range c.seal {
		b := c.by(s.line.Origin, "seal "+s.line.Path)
		if c.closed(s.line) {
			b.Call("fchmodat", c.root, sysprog.Str(pathx.Rel("/", s.line.Path)), sysprog.Named(0o111, "0111"))
		}
		b.MountSetattr(s.mount, "", sysprog.AtEmptyPath, sysprog.MountAttr{Set: sysprog.MountAttrReadOnly})
	}
}

// pivot makes the new root the root, and unmounts the old one.
func (c *compiler) pivot() {
	b := c.do("enter the new root")
	b.Fchdir(c.root)
	b.PivotRoot(".", ".")
	b.Umount2(".", sysprog.UmountDetach)
	b.Chdir("/")
}
