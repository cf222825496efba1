//go:build amd64 || arm64

package notify

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// refuseDatagrams answers socket(2) of a unix datagram socket: it could send to a
// socket of the host by any of the calls that send, which nobody judges. The error
// is the one that the manual has for a type that may not be used.
func (c *call) refuseDatagrams() {
	c.record(plan.OpConnect, "unix datagram sockets", plan.Verdict{Access: policy.Hidden, Rule: plan.RuleSockets, Subject: policy.Datagrams, At: policy.Datagrams,
		Reason: "by one, sockets that the host makes later can be sent to", Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: sockets"}})
	c.fail(unix.EACCES)
}

// packetPair answers socketpair(2) of unix datagram sockets by a pair of sequenced
// packets. Those keep the ends of messages, too, and know no address: whatever one
// end sends goes to the other, also where sendto(2) names a socket of the host.
// Between programs that only talk to each other there is no difference but that the
// end of one is an end of file for the other.
func (c *call) packetPair() {
	kind, protocol, into := c.args[1], uint32(c.args[2]), c.args[3]
	if protocol != 0 && protocol != unix.AF_UNIX {
		c.fail(unix.EPROTONOSUPPORT)
		return
	}
	if err := c.write(into, make([]byte, 8)); err != nil { // before there is anything to take back
		c.fail(unix.EFAULT)
		return
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|int(kind)&unix.SOCK_NONBLOCK, 0)
	if err != nil {
		c.failWith(err)
		return
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	numbers := make([]byte, 0, 8)
	for _, fd := range pair {
		number, err := c.add(fd, kind&unix.SOCK_CLOEXEC != 0)
		if err != nil {
			c.failWith(err)
			return
		}
		numbers = binary.NativeEndian.AppendUint32(numbers, uint32(number))
	}
	c.finish(c.write(into, numbers))
}

// write writes into the memory of the process, which waits. The memory is held
// before that is certain: its number alone could mean another process by then.
func (c *call) write(address uint64, data []byte) error {
	mem, err := unix.Open(c.proc("mem"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(mem)
	if !c.valid() {
		return unix.ESRCH
	}
	n, err := unix.Pwrite(mem, data, int64(address))
	if err == nil && n != len(data) {
		err = unix.EFAULT
	}
	return err
}

// add puts a descriptor into the process and returns its number there.
func (c *call) add(fd int, closeOnExec bool) (int, error) {
	a := addFD{id: c.id, source: uint32(fd)}
	if closeOnExec {
		a.descriptionFlags = unix.O_CLOEXEC
	}
	for {
		number, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(c.b.fd), ioctlAddFD, uintptr(unsafe.Pointer(&a)))
		switch e {
		case 0:
			return int(number), nil
		case unix.EINTR:
			continue
		}
		return 0, e
	}
}
