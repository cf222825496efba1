//go:build amd64 || arm64

package notify

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/netns"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// This file finds out whether a socket belongs to the sandbox or to the host. A socket belongs
// for ever to the network namespace that it was made in, its file to one socket, and no process
// inside can enter another namespace. So the command's own sockets are those of its namespace.
//
// In the host's network, all sockets are in one namespace. There the command's own sockets are
// those that a process of the sandbox's pid namespace, which none can leave, has open. It has one
// of the host open only if somebody outside has passed it in.

// A boundFile is a socket's file as the kernel's diagnostics number it.
type boundFile struct {
	inode uint64
	// device is what stat returns, and mounted the file system's own: some, as Btrfs and
	// overlays, show another one to stat.
	device, mounted uint32
	// unique: no two files of the device have the same low half of their numbers.
	unique bool
}

// boundFile finds the numbers of an open file.
func (c *call) boundFile(fd int) (boundFile, error) {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(fd, &st), unix.Fstatfs(fd, &fs)); err != nil {
		return boundFile{}, unix.EACCES
	}
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return boundFile{}, unix.EACCES
	}
	info = append([]byte("\n"), info...)
	f := boundFile{inode: uint64(lastNumber(info, "\nino:")), device: netns.DeviceNumber(unix.Major(st.Dev), unix.Minor(st.Dev))}
	f.mounted = f.device
	if f.unique = (fs.Type == unix.EXT4_SUPER_MAGIC || fs.Type == unix.TMPFS_MAGIC) && f.inode <= 1<<32-1; !f.unique {
		f.mounted = c.mountDevice(lastField(info, "\nmnt_id:"), f.device)
	}
	return f, nil
}

// mountDevice is the device of the file system of a mount, or else the one given.
func (c *call) mountDevice(mount string, device uint32) uint32 {
	mounts, err := os.ReadFile(c.proc("mountinfo"))
	if err != nil {
		return device
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != mount {
			continue
		}
		major, minor, _ := strings.Cut(fields[2], ":")
		a, err1 := strconv.ParseUint(major, 10, 12)
		b, err2 := strconv.ParseUint(minor, 10, 20)
		if err1 == nil && err2 == nil {
			return netns.DeviceNumber(uint32(a), uint32(b))
		}
	}
	return device
}

// is reports whether the numbers are those of the file.
func (f boundFile) is(b netns.Bound) bool {
	return b.Inode == uint32(f.inode) && (b.Device == f.device || b.Device == f.mounted)
}

// bindsOwn reports whether the file is that of a socket of the sandbox. Where the numbers leave
// a doubt, a socket of the host with the same numbers makes the answer no. A kernel without
// diagnostics cannot tell: then only masks hide sockets.
func (c *call) bindsOwn(f boundFile) (bool, error) {
	own, err := false, error(nil)
	if c.b.inHostNetwork() {
		own, err = c.bindsHeld(f)
	} else {
		n, openErr := c.network()
		if openErr != nil {
			return false, unix.EACCES
		}
		own, err = bound(n, f)
		if err == nil && !own {
			own, err = bound(n, f) // a list that is made while sockets come and go may lack one
		}
		own = own && (f.unique || !c.b.bindsHost(f))
	}
	switch {
	case errors.Is(err, netns.ErrNoDiagnostics):
		return true, nil
	case err != nil:
		return false, unix.EACCES
	}
	return own, nil
}

// bindsHeld is bindsOwn in the host's network. Where the numbers of a file leave a doubt, all
// sockets with them have to be the command's.
func (c *call) bindsHeld(f boundFile) (bool, error) {
	n := c.b.hostNetwork()
	if n == nil {
		return false, unix.EACCES
	}
	var sockets []uint32
	err := n.Bound(func(at netns.Bound) {
		if f.is(at) && at.Socket != 0 {
			sockets = append(sockets, at.Socket)
		}
	})
	switch {
	case err != nil:
		return false, err
	case f.unique:
		return c.holdsOne(sockets), nil
	}
	return len(sockets) > 0 && !slices.ContainsFunc(sockets, func(s uint32) bool { return !c.holdsOne([]uint32{s}) }), nil
}

// bindsHost reports whether the file is that of a socket of the host.
func (b *Broker) bindsHost(f boundFile) bool {
	n := b.hostNetwork()
	if n == nil {
		return false
	}
	found, err := bound(n, f)
	return err == nil && found
}

// bound reports whether a socket of the namespace is bound to the file.
func bound(n *netns.Namespace, f boundFile) (found bool, err error) {
	err = n.Bound(func(b netns.Bound) { found = found || f.is(b) })
	return found && err == nil, err
}

// networks are the namespaces that the broker asks, nil until it does.
type networks struct {
	sync.Mutex
	sandbox, host *netns.Namespace
}

func (n *networks) close() {
	n.Lock()
	defer n.Unlock()
	for _, ns := range []*netns.Namespace{n.sandbox, n.host} {
		if ns != nil {
			ns.Close()
		}
	}
}

// inHostNetwork reports whether the command has the host's own network.
func (b *Broker) inHostNetwork() bool { return b.config.Plan.Network.Mode == policy.NetworkHost }

// hostNetwork is the network of this process, to ask about, or nil.
func (b *Broker) hostNetwork() *netns.Namespace {
	b.networks.Lock()
	defer b.networks.Unlock()
	if b.networks.host == nil {
		b.networks.host, _ = netns.OpenOwn()
	}
	return b.networks.host
}

// network opens the network namespace that all processes of the sandbox share: none of them
// has the right to change it.
func (c *call) network() (*netns.Namespace, error) {
	all := &c.b.networks
	all.Lock()
	defer all.Unlock()
	if all.sandbox != nil {
		return all.sandbox, nil
	}
	f, err := os.Open(c.proc("ns/net"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !c.valid() { // the number may mean another process by now
		return nil, unix.ESRCH
	}
	n, err := netns.Open(f)
	if err != nil {
		return nil, err
	}
	all.sandbox = n
	return n, nil
}

// mayUseAbstract reports whether an abstract name of the host's network is one of the command's
// own, or all of them are open to it. It records a denial. The broker, which connects, is not in
// the Landlock domain that closes them to the command.
func (c *call) mayUseAbstract(name string) bool {
	if slices.ContainsFunc(c.b.config.Plan.Sockets, plan.SocketPath.Abstract) {
		return true
	}
	n := c.b.hostNetwork()
	if n == nil {
		return false
	}
	sockets, err := n.Abstract(name)
	if err != nil || len(sockets) == 0 {
		return err == nil // nobody is there: the kernel says so
	}
	if c.holdsOne(sockets) {
		return true
	}
	c.record(plan.OpConnect, "@"+name, plan.Decision{Access: policy.Hidden, Rule: judge.RuleSockets, Subject: "@" + name,
		Reason: "abstract sockets of the host are closed; in its own network none can be granted alone, so use another network mode",
		Origin: builtin("sockets")})
	return false
}

const (
	// heldTries is how often processes are searched before a socket is taken for one of the
	// host: it may be on its way from one process to another.
	heldTries = 2
	// maxDescriptors bounds the descriptors of one process that are tried one by one, where it
	// does not let them be listed.
	maxDescriptors = 1024
)

// holdsOne reports whether a process of the sandbox has one of the sockets open.
func (c *call) holdsOne(sockets []uint32) bool {
	if len(sockets) == 0 {
		return false
	}
	for range heldTries {
		inside, pids := c.processes()
		for _, pid := range pids {
			if !holdsAny(pid, sockets) {
				continue
			}
			if ns, err := pidNamespace(pid); err == nil && ns == inside { // the number still means it
				return true
			}
		}
	}
	return false
}

// processes are those of the sandbox, as the host numbers them, that of the call first, and the
// number of their pid namespace.
func (c *call) processes() (inside uint64, pids []int) {
	inside, err := pidNamespace(c.pid)
	if err != nil || !c.valid() {
		return 0, nil
	}
	names, err := listNames("/proc")
	if err != nil {
		return 0, nil
	}
	pids = []int{c.status().tgid}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if ns, err := pidNamespace(pid); err == nil && ns == inside && pid != pids[0] {
			pids = append(pids, pid)
		}
	}
	return inside, pids
}

func listNames(name string) ([]string, error) {
	dir, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// pidNamespace is the number of a process's pid namespace.
func pidNamespace(pid int) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat("/proc/"+strconv.Itoa(pid)+"/ns/pid", &st)
	return st.Ino, err
}

// holdsAny reports whether a process has a descriptor of one of the sockets.
func holdsAny(pid int, sockets []uint32) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
	names, err := listNames(dir)
	if err != nil {
		return takesAny(pid, sockets)
	}
	for _, name := range names {
		link, err := os.Readlink(dir + name)
		if err != nil {
			continue
		}
		for _, s := range sockets {
			if link == "socket:["+strconv.FormatUint(uint64(s), 10)+"]" {
				return true
			}
		}
	}
	return false
}

// takesAny is holdsAny for a process that does not let its descriptors be listed, as agents
// with keys do. Its user namespace is the broker's, so the broker may take its descriptors.
func takesAny(pid int, sockets []uint32) bool {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(process)
	for number := range maxDescriptors {
		fd, err := unix.PidfdGetfd(process, number, 0)
		if errors.Is(err, unix.EBADF) {
			continue
		}
		if err != nil {
			return false
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK && slices.Contains(sockets, uint32(st.Ino)) {
			return true
		}
	}
	return false
}
