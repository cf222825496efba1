//go:build amd64 || arm64

package notify

import (
	"errors"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/netns"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// In the host's network a socket of the command is in the same namespace as those
// of the host. It is known by who holds it: a process of the sandbox's pid
// namespace, which none can leave. A socket of the host is held by one only if
// somebody outside has passed it in.

const (
	// heldTries is how often processes are looked at before a socket is taken for
	// one of the host: it may be on its way from one process to another.
	heldTries = 2
	// maxDescriptors bounds the descriptors of one process that are looked at one by
	// one, where it does not let them be listed.
	maxDescriptors = 1024
)

// inHostNetwork reports whether the command has the host's own network.
func (b *Broker) inHostNetwork() bool { return b.config.Plan.Network.Mode == policy.NetworkHost }

// bindsHeld is bindsOwn in the host's network. Where the numbers of a file leave a
// doubt, all sockets with them have to be the command's.
func (b *Broker) bindsHeld(c *call, f boundFile) (bool, error) {
	n := b.hostNetwork()
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
	case errors.Is(err, netns.ErrNoDiagnostics):
		return true, nil
	case err != nil:
		return false, unix.EACCES
	case f.unique:
		return c.holdsOne(sockets), nil
	}
	return len(sockets) > 0 && !slices.ContainsFunc(sockets, func(s uint32) bool { return !c.holdsOne([]uint32{s}) }), nil
}

// mayUseAbstract reports whether an abstract name of the host's network is one of
// the command's own, or all of them are open to it. The broker, who connects, is not
// in the Landlock domain that closes them to the command.
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
	c.record(plan.OpConnect, "@"+name, plan.Verdict{Access: policy.Hidden, Rule: plan.RuleSockets, Subject: "@" + name,
		Reason: "abstract sockets of the host are closed; in its own network none can be granted alone, so use another network mode",
		Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: sockets"}})
	return false
}

// holdsOne reports whether a process of the sandbox holds one of the sockets.
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
			if ns, err := pidNamespace(pid); err == nil && ns == inside { // the number means it still
				return true
			}
		}
	}
	return false
}

// processes are those of the sandbox, as the host numbers them, that of the call
// first, and the number of their pid namespace.
func (c *call) processes() (inside uint64, pids []int) {
	inside, err := pidNamespace(c.pid)
	if err != nil || !c.valid() {
		return 0, nil
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return 0, nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
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

// pidNamespace is the number of a process's pid namespace.
func pidNamespace(pid int) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat("/proc/"+strconv.Itoa(pid)+"/ns/pid", &st)
	return st.Ino, err
}

// holdsAny reports whether a process has a descriptor of one of the sockets.
func holdsAny(pid int, sockets []uint32) bool {
	names, err := descriptorsOf(pid)
	if err != nil {
		return takesAny(pid, sockets)
	}
	for _, name := range names {
		var link [64]byte
		size, err := unix.Readlink("/proc/"+strconv.Itoa(pid)+"/fd/"+name, link[:])
		if err != nil {
			continue
		}
		for _, s := range sockets {
			if string(link[:size]) == "socket:["+strconv.FormatUint(uint64(s), 10)+"]" {
				return true
			}
		}
	}
	return false
}

func descriptorsOf(pid int) ([]string, error) {
	dir, err := os.Open("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// takesAny is holdsAny for a process that has made itself opaque, as agents with
// keys do. Its user namespace is ours, so that we may take its descriptors.
func takesAny(pid int, sockets []uint32) bool {
	held, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(held)
	for fd := range maxDescriptors {
		got, err := unix.PidfdGetfd(held, fd, 0)
		if errors.Is(err, unix.EBADF) {
			continue
		}
		if err != nil {
			return false
		}
		var st unix.Stat_t
		err = unix.Fstat(got, &st)
		unix.Close(got)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK && slices.Contains(sockets, uint32(st.Ino)) {
			return true
		}
	}
	return false
}
