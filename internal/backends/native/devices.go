package native

import (
	"slices"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// deviceLinks are the links that programs expect in /dev.
var deviceLinks = [][2]string{
	{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"},
	{"pts/ptmx", "ptmx"},
}

// cloneDevices clones the host's device nodes, before /dev is mounted over and all mounts
// become nodev.
func (c *compiler) cloneDevices() {
	b := c.do("take device nodes")
	for _, name := range wellknown.DeviceNodes {
		c.nodes[name] = b.OpenTree(sysprog.Cwd(), "/dev/"+name, sysprog.OpenTreeClone|sysprog.AtSymlinkNoFollow)
	}
	if c.hasTerminal() {
		b = c.do("take the terminal")
		c.nodes[console] = b.OpenTreeText(sysprog.Cwd(), c.prog.AddText("terminal"), sysprog.OpenTreeClone|sysprog.AtSymlinkNoFollow)
	}
}

// console is the name of the command's own terminal in /dev, so that ttyname(3) finds it: its
// name outside is not in the sandbox's /dev/pts.
const console = "console"

func (c *compiler) hasTerminal() bool { return c.plan.Command != nil && c.plan.Command.Terminal }

// devices makes /dev, which is mounted over the store.
func (c *compiler) devices() {
	line := c.deviceLine()
	b := c.by(line.Origin, "make /dev")
	dev := c.newFolder(b, 0o755)
	c.attach(b, dev, line.Path)
	nodes := wellknown.DeviceNodes
	if c.hasTerminal() {
		nodes = append(slices.Clip(nodes), console)
	}
	for _, name := range nodes {
		b.Mknodat(dev, name, 0o100666, 0)
		b.Attach(c.nodes[name], dev, name)
		b.Close(c.nodes[name])
	}
	// Later mounts of the host on one of the nodes must not appear here. The nodes are the
	// host's own files: on a read-only mount they can be used, but root cannot change them.
	b.MountSetattr(dev, "", emptyRecursive, sysprog.MountAttr{Set: sysprog.MountAttrReadOnly, Propagation: sysprog.MountPrivate})
	b.MountSetattr(dev, "", sysprog.AtEmptyPath, sysprog.MountAttr{Clear: sysprog.MountAttrReadOnly})
	for _, l := range deviceLinks {
		b.Symlinkat(l[0], dev, l[1])
	}
	b.Mkdirat(dev, "shm", 0o1777)
	b.Mkdirat(dev, "pts", 0o755)
	c.made["/dev/shm"], c.made["/dev/pts"] = true, true // a line may lie in one of them
	terminals := newPTS(b)
	b.Attach(terminals, dev, "pts")
	b.Close(terminals)
	c.keep(b, line, dev)
}

// deviceLine returns the line of the plan for /dev.
func (c *compiler) deviceLine() *plan.Path {
	for i := range c.plan.Paths {
		if e := &c.plan.Paths[i]; e.Content == plan.Devices {
			return e
		}
	}
	return &plan.Path{Path: "/dev", Kind: hostfs.Dir, Content: plan.Devices, Access: policy.Write}
}

// newPTS makes a new instance of /dev/pts.
func newPTS(b sysprog.Block) sysprog.Arg {
	return b.NewMount("devpts", sysprog.MountAttrNoSuid|sysprog.MountAttrNoExec, "ptmxmode=0666", "mode=0620")
}
