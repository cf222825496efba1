package native

import (
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// deviceNodes are the devices that programs expect and that reach nothing.
var deviceNodes = []string{"null", "zero", "full", "random", "urandom", "tty"}

// deviceLinks are the names that programs expect in /dev.
var deviceLinks = [][2]string{
	{"/proc/self/fd", "dev/fd"}, {"/proc/self/fd/0", "dev/stdin"}, {"/proc/self/fd/1", "dev/stdout"}, {"/proc/self/fd/2", "dev/stderr"},
	{"pts/ptmx", "dev/ptmx"},
}

// scratchDir holds, while the layout is made, files that are shown elsewhere.
const scratchDir = "dev/.cloche"

func scratchFile(name string) string { return scratchDir + "/" + name }

// cloneDevices takes the host's device nodes before /dev is covered. They are
// the only mounts on which devices work.
func (c *compiler) cloneDevices() {
	b := c.do("take device nodes")
	for _, name := range deviceNodes {
		fd := open(b, sysprog.Cwd(), "/dev/"+name)
		tree := b.OpenTree(fd, "", cloneOne)
		b.MountSetattr(tree, "", sysprog.AtEmptyPath, sysprog.MountAttr{Set: sysprog.MountAttrNoSuid | sysprog.MountAttrNoExec, Propagation: sysprog.MountPrivate})
		c.nodes[name] = tree
		if name == "null" {
			c.null = fd
		} else {
			b.Close(fd)
		}
	}
}

// devices makes /dev, and the scratch folder in it.
func (c *compiler) devices() {
	dev := plan.Path{Path: "/dev", Kind: host.Dir, Content: plan.Devices, Access: policy.Write}
	for _, e := range c.plan.Paths {
		if e.Content == plan.Devices {
			dev = e
		}
	}
	b := c.by(dev.Origin, "make /dev")
	c.makePoint(b, dev)
	mount := b.NewMount("tmpfs", sysprog.MountAttrNoSuid, c.sized("mode=0755")...)
	c.attach(b, mount, dev.Path)
	c.keep(b, dev, mount)
	for _, name := range deviceNodes {
		b.Mknodat(c.root, "dev/"+name, 0o100666, 0)
		c.cover(b, c.nodes[name], "/dev/"+name)
	}
	for _, l := range deviceLinks {
		b.Symlinkat(l[0], c.root, l[1])
	}
	b.Mkdirat(c.root, "dev/shm", 0o777)
	b.Call("fchmodat", c.root, sysprog.Str("dev/shm"), sysprog.Named(0o1777, "01777"))
	b.Mkdirat(c.root, "dev/pts", 0o755)
	c.cover(b, newPTS(b), "/dev/pts")
	b.Mkdirat(c.root, scratchDir, 0o700)
	b.Mkdirat(c.root, scratchFile("mask"), 0)
}

// newPTS makes an instance of its own of the terminals in /dev/pts.
func newPTS(b sysprog.Block) sysprog.Arg {
	return b.NewMount("devpts", sysprog.MountAttrNoSuid|sysprog.MountAttrNoExec, "ptmxmode=0666", "mode=0620")
}

// removeScratch removes the names of what is shown elsewhere; it stays shown.
func (c *compiler) removeScratch() {
	const removeDir = 0x200
	b := c.do("remove the scratch folder")
	for _, name := range c.scratch {
		b.Call("unlinkat", c.root, sysprog.Str(scratchFile(name)), sysprog.Const(0))
	}
	b.Call("unlinkat", c.root, sysprog.Str(scratchFile("mask")), sysprog.Named(removeDir, "AT_REMOVEDIR"))
	b.Call("unlinkat", c.root, sysprog.Str(scratchDir), sysprog.Named(removeDir, "AT_REMOVEDIR"))
}
