//go:build amd64 || arm64

package notify

import (
	"bytes"
	"encoding/binary"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// No connect goes on in the kernel, whatever its address and its socket are:
// another thread could change both meanwhile (the memory of the address, and with
// dup2 what the descriptor means), and nothing but the broker keeps the command
// from a socket that the host made after the sandbox. So the broker connects the
// process's own socket, of which it takes a descriptor, to an address that it has
// read once. An address of the network is looked up in the namespace of that
// socket. Peers see the broker's pid, and the same user.

const (
	maxAddress = 128 // struct sockaddr_storage
	sunPath    = 2   // where the path begins
	// pidfdThread is PIDFD_THREAD, Linux 6.9.
	pidfdThread = unix.O_EXCL
	// deleted is what the kernel adds to the name of a file that has none any more.
	deleted = " (deleted)"
)

// connect answers connect(2).
func (c *call) connect(fd int32, address, length uint64) {
	raw, err := c.address(address, length)
	if err != nil {
		c.failWith(err)
		return
	}
	socket, err := c.descriptor(fd)
	if err != nil {
		c.failWith(err)
		return
	}
	to := target{raw: raw, held: -1}
	if name, ok := pathOf(raw); ok {
		if to, ok = c.socketAt(name); !ok {
			unix.Close(socket)
			return
		}
	} else if name, ok := abstractOf(raw); ok && c.b.inHostNetwork() && !c.mayUseAbstract(name) {
		unix.Close(socket)
		c.fail(unix.EPERM) // as Landlock says
		return
	}
	c.dial(socket, to)
}

// address reads the address of a socket, once.
func (c *call) address(address, length uint64) ([]byte, error) {
	size := int32(length) // as the kernel takes it
	if size < 0 || size > maxAddress {
		return nil, unix.EINVAL
	}
	raw := make([]byte, size)
	if size == 0 {
		return raw, nil
	}
	if n, err := c.read(address, raw); err != nil || n < len(raw) {
		return nil, unix.EFAULT
	}
	return raw, nil
}

// pathOf is the path in the address of a unix socket.
func pathOf(raw []byte) (string, bool) {
	if len(raw) <= sunPath || binary.NativeEndian.Uint16(raw) != unix.AF_UNIX || raw[sunPath] == 0 {
		return "", false
	}
	text, _, _ := bytes.Cut(raw[sunPath:], []byte{0})
	return string(text), true
}

// abstractOf is the abstract name in the address of a unix socket.
func abstractOf(raw []byte) (string, bool) {
	if len(raw) <= sunPath || binary.NativeEndian.Uint16(raw) != unix.AF_UNIX || raw[sunPath] != 0 {
		return "", false
	}
	return string(raw[sunPath+1:]), true
}

// descriptor takes a descriptor of the process. A thread may have a table of its
// own; a kernel that cannot tell takes that of its process.
func (c *call) descriptor(fd int32) (int, error) {
	held, err := unix.PidfdOpen(c.pid, pidfdThread)
	if err != nil {
		held, err = unix.PidfdOpen(c.status().tgid, 0)
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(held)
	got, err := unix.PidfdGetfd(held, int(fd), 0)
	if err == nil && !c.valid() {
		unix.Close(got)
		return -1, unix.ESRCH
	}
	return got, err
}

// A target is what a socket is connected to: an address, and the file that is held
// for it, if it is one.
type target struct {
	raw  []byte
	held int
}

func (t target) close() {
	if t.held >= 0 {
		unix.Close(t.held)
	}
}

// socketAt finds the socket that a path means and holds it. Where it may not be
// connected to, the call is answered.
func (c *call) socketAt(name string) (target, bool) {
	w, err := c.wayOf(unix.AT_FDCWD, name)
	if err != nil {
		c.failWith(err)
		return target{}, false
	}
	held, err := c.hold(w, unix.O_PATH)
	if err != nil {
		c.recordHidden(w.whole)
		c.failWith(err)
		return target{}, false
	}
	if err := c.judgeSocket(held); err != nil {
		unix.Close(held)
		c.failWith(err)
		return target{}, false
	}
	raw := binary.NativeEndian.AppendUint16(nil, unix.AF_UNIX)
	return target{raw: append(append(raw, selfFD(held)...), 0), held: held}, true
}

// judgeSocket says why what is held may not be connected to, or nil. Refused is
// what has no server inside, as the kernel says of a socket without a server:
// programs know that.
func (c *call) judgeSocket(held int) error {
	var st unix.Statx_t
	if err := unix.Statx(held, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st); err != nil {
		return err
	}
	name, err := realPath(held)
	if err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		c.recordHidden(name)
		return unix.ECONNREFUSED
	case st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 && c.b.config.Plan.GrantsSocket(strings.TrimSuffix(name, deleted)):
		// The very one that was granted, which may be gone from where it lay: what the
		// host puts in its place later is no mount.
		return nil
	}
	file, err := c.boundFile(held)
	if err != nil {
		return err
	}
	if own, err := c.b.bindsOwn(c, file); own || err != nil {
		return err
	}
	// One whose server is gone is no refusal.
	if outside, shown := c.b.config.Plan.HostPath(name); shown && c.b.bindsHost(file) {
		c.recordSocket(name, outside)
	}
	return unix.ECONNREFUSED
}

// recordSocket records that a socket of the host was not connected to.
func (c *call) recordSocket(inside, outside string) {
	c.record(plan.OpConnect, inside, plan.Verdict{Access: policy.Hidden, Rule: plan.RuleSockets, Subject: outside, At: outside,
		Reason: "sockets of the host are hidden unless granted", Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: sockets"}})
}

// recordHidden records that what a path means is a socket outside, which is not
// shown inside.
func (c *call) recordHidden(whole string) {
	if whole == "" {
		return
	}
	inside := c.meant(whole)
	outside, hidden := c.b.config.Plan.HiddenAt(inside)
	if info, err := os.Stat(outside); hidden && err == nil && info.Mode()&os.ModeSocket != 0 {
		c.recordSocket(inside, outside)
	}
}

// meant is a path with the links in it followed as far as there is something.
func (c *call) meant(whole string) string {
	for range maxLinks {
		at, err := c.b.locate(whole)
		if err != nil {
			return c.b.meantBelow(whole)
		}
		k, _ := at.kind()
		next, err := "", error(unix.EINVAL)
		if k == unix.S_IFLNK {
			next, err = at.target()
		}
		found := at.path()
		at.close()
		if err != nil {
			return found
		}
		whole = next
	}
	return whole
}

// meantBelow is meant where a folder on the way is missing or closed.
func (b *Broker) meantBelow(whole string) string {
	clean := path.Clean(whole)
	for above := path.Dir(clean); ; above = path.Dir(above) {
		dir, real, err := b.folder(above)
		if err == nil {
			unix.Close(dir)
			return path.Join(real, strings.TrimPrefix(clean, above))
		}
		if above == "/" {
			return clean
		}
	}
}
