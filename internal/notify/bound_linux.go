//go:build amd64 || arm64

package notify

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/netns"
)

// Whose socket a file is: a socket belongs for ever to the network namespace that
// it was made in, its file to one socket, and no process inside can enter another
// namespace. So the command's own sockets are those of its namespace. In the host's
// network they are those that a process of the sandbox holds: see holds.

// A boundFile is a socket's file as the kernel's diagnostics number it.
type boundFile struct {
	inode uint64
	// device is what stat says, and mounted the file system's own: some, as Btrfs
	// and overlays, show another one to stat.
	device, mounted uint32
	// unique: no two files of the device have the same low half of their numbers.
	unique bool
}

// boundFile finds the numbers of an open file.
func (c *call) boundFile(held int) (boundFile, error) {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(held, &st), unix.Fstatfs(held, &fs)); err != nil {
		return boundFile{}, unix.EACCES
	}
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(held))
	if err != nil {
		return boundFile{}, unix.EACCES
	}
	info = append([]byte("\n"), info...)
	f := boundFile{inode: uint64(lastNumber(info, "\nino:")), device: netns.DeviceNumber(unix.Major(st.Dev), unix.Minor(st.Dev))}
	f.mounted = f.device
	if f.unique = (fs.Type == unix.EXT4_SUPER_MAGIC || fs.Type == unix.TMPFS_MAGIC) && f.inode <= 1<<32-1; !f.unique {
		f.mounted = c.mountDevice(lastNumber(info, "\nmnt_id:"), f.device)
	}
	return f, nil
}

// mountDevice is the device of the file system that is mounted there, or else the
// one given.
func (c *call) mountDevice(mount int, device uint32) uint32 {
	mounts, err := os.ReadFile(c.proc("mountinfo"))
	if err != nil {
		return device
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != strconv.Itoa(mount) {
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

// bindsOwn reports whether the file is that of a socket of the sandbox. Where the
// numbers leave a doubt, one of the host with the same numbers decides that it is
// not. A kernel without diagnostics cannot tell: then only masks hide sockets.
func (b *Broker) bindsOwn(c *call, f boundFile) (bool, error) {
	if b.inHostNetwork() {
		return b.bindsHeld(c, f)
	}
	n, err := b.namespaceOf(c)
	if err != nil {
		return false, unix.EACCES
	}
	own, err := bound(n, f)
	if err == nil && !own {
		own, err = bound(n, f) // a list that is made while sockets come and go may lack one
	}
	switch {
	case errors.Is(err, netns.ErrNoDiagnostics):
		return true, nil
	case err != nil:
		return false, unix.EACCES
	}
	return own && (f.unique || !b.bindsHost(f)), nil
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

// hostNetwork is the network of this process, to ask about, or nil.
func (b *Broker) hostNetwork() *netns.Namespace {
	b.networks.Lock()
	defer b.networks.Unlock()
	if b.networks.host == nil {
		b.networks.host, _ = netns.OpenOwn()
	}
	return b.networks.host
}

// bound reports whether a socket of the namespace is bound to the file.
func bound(n *netns.Namespace, f boundFile) (found bool, err error) {
	err = n.Bound(func(b netns.Bound) { found = found || f.is(b) })
	return found && err == nil, err
}

// is reports whether the numbers are those of the file.
func (f boundFile) is(b netns.Bound) bool {
	return b.Inode == uint32(f.inode) && (b.Device == f.device || b.Device == f.mounted)
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

// namespaceOf takes hold of the network namespace that all processes of the sandbox
// share: none of them has the right to change it.
func (b *Broker) namespaceOf(c *call) (*netns.Namespace, error) {
	b.networks.Lock()
	defer b.networks.Unlock()
	if b.networks.sandbox != nil {
		return b.networks.sandbox, nil
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
	b.networks.sandbox = n
	return n, nil
}
