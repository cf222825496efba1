//go:build amd64 || arm64

package sysprog

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// askFilter is refuseFilter that asks a listener instead.
func askFilter() []byte {
	refused := binary.LittleEndian.AppendUint32(nil, 0x50000|1)
	return bytes.Replace(refuseFilter(), refused, binary.LittleEndian.AppendUint32(nil, 0x7fc00000), 1)
}

// N1, N2: the listener of a filter arrives at the parent, which decides what a
// call returns while the child waits, and the child keeps no copy of it.
func TestSendListener(t *testing.T) {
	needKernel(t)
	testenv.AlsoAsUser(t)
	openPoller(t)
	fds := descriptors(t)
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	const number, result = 60, 1234
	p := program(func(p *Program, b Block) {
		out, socket := p.AddFile("output"), p.AddFile("listener's way out")
		b.CloseOthers()
		b.Dup3(out, 1)
		b.NoNewPrivs()
		b.SendListener(askFilter(), 0, socket, number)
		b.exactly(result, "personality", Const(0xffffffff))
		shell(b, "readlink /proc/self/fd/*; exit 9")
	})
	answered := make(chan error, 1)
	go func() { answered <- answerOne(ends[0], result) }()
	text, code := output(t, p, Options{Files: []int{ends[1]}})
	if err := <-answered; err != nil || code != 9 || !strings.Contains(text, "pipe:") || strings.Contains(text, "seccomp") {
		t.Errorf("answer %v, exit code %d, descriptors of the child:\n%s", err, code, text)
	}
	unix.Close(ends[0])
	unix.Close(ends[1])
	if now := descriptors(t); now > fds {
		t.Errorf("%d descriptors, %d before", now, fds)
	}
}

// openPoller makes the runtime open the descriptors of its poller, which it does
// for the first pipe and keeps.
func openPoller(t *testing.T) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
}

// answerOne receives the listener and makes the first call return a value.
func answerOne(socket int, value int64) error {
	const receive, send = 0xc0502100, 0xc0182101 // SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		return unix.EBADMSG
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	defer unix.Close(fds[0])
	var request [10]uint64 // struct seccomp_notif: the id comes first
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fds[0]), receive, uintptr(unsafe.Pointer(&request))); e != 0 {
		return e
	}
	response := [3]uint64{request[0], uint64(value)} // struct seccomp_notif_resp: id, value, error and flags
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fds[0]), send, uintptr(unsafe.Pointer(&response))); e != 0 {
		return e
	}
	return nil
}
