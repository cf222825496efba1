//go:build amd64 || arm64

package notify

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ReceiveListener waits for the descriptor of a filter's listener on a socket.
// It is io.EOF if the other end is closed before.
func ReceiveListener(socket int) (int, error) {
	var data [1]byte
	control := make([]byte, unix.CmsgSpace(4))
	n, size, _, _, err := unix.Recvmsg(socket, data[:], control, unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR {
		n, size, _, _, err = unix.Recvmsg(socket, data[:], control, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return -1, os.NewSyscallError("recvmsg", err)
	}
	if n == 0 {
		return -1, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(control[:size])
	if err != nil || len(messages) != 1 {
		return -1, errors.New("the message has no descriptor")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.New("the message has no descriptor")
	}
	return fds[0], nil
}
