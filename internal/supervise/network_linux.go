package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A network is the network of one sandbox. It is made when the launched program sends its
// namespace, while the program continues.
type network struct {
	socket  int
	wrapped bool          // the caller runs the command (Session.Wrap)
	done    chan struct{} // closed when the fields below are final
	closer  io.Closer     // nil if there is no network
	pid     int           // the process that sent the namespace
	err     error         // why the network could not be made
}

var errNoNetwork = errors.New("the launch needs a network, and nobody makes it")

// handoverPair makes the socket for the namespace. The socket reports the sender's pid,
// because the pid of a wrapped command is not known otherwise.
func handoverPair() (ours int, theirs *os.File, err error) {
	ours, theirs, err = socketPair(unix.SOCK_SEQPACKET)
	if err == nil {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(ours, unix.SOL_SOCKET, unix.SO_PASSCRED, 1))
	}
	if err != nil && theirs != nil {
		unix.Close(ours)
		theirs.Close()
	}
	return ours, theirs, err
}

// startNetwork waits for the namespace on the socket, which it takes over. It returns nil if
// the launch has no network.
func startNetwork(spec *Spec, socket int, wrapped bool) *network {
	if socket <= 0 {
		return nil
	}
	n := &network{socket: socket, wrapped: wrapped, done: make(chan struct{})}
	go n.serve(spec.Network)
	return n
}

// serve makes the network and reports to the program that it is ready.
func (n *network) serve(make MakeNetwork) {
	defer close(n.done)
	namespace, stderr, err := n.receive()
	if stderr != nil {
		defer stderr.Close() // it is the command's: no other process may keep it open
	}
	if namespace == nil {
		n.err = err // if nil, the program ended before and has its own error
		return
	}
	defer namespace.Close()
	if make == nil {
		n.err = errNoNetwork
	} else {
		n.closer, n.err = make(namespace)
	}
	if n.err != nil {
		n.complain(stderr)
		_ = unix.Shutdown(n.socket, unix.SHUT_RDWR) // the program that waits for the network gives up
		return
	}
	_ = unix.Send(n.socket, []byte{1}, unix.MSG_NOSIGNAL) // an error means that the program has ended
}

// complain prints why there is no network to the command's standard error, if the command is
// wrapped: its caller sees no other report.
func (n *network) complain(stderr *os.File) {
	if n.wrapped && stderr != nil {
		fmt.Fprintf(stderr, "cloche: cannot make the network of the sandbox: %v\n", n.err)
	}
}

// receive returns the namespace and, if it was sent before, the command's standard error. At
// end of file both are nil.
func (n *network) receive() (namespace, stderr *os.File, err error) {
	for {
		file, pid, err := receiveFile(n.socket, 0)
		if file == nil {
			return nil, stderr, err
		}
		if isNamespace(file) {
			n.pid = pid
			return file, stderr, nil
		}
		if stderr != nil {
			stderr.Close()
		}
		stderr = file
	}
}

func isNamespace(f *os.File) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &s) == nil && s.Type == unix.NSFS_MAGIC
}

// receiveFile returns the next descriptor and, if the socket reports it, the pid of its
// sender. At end of file, file is nil. The flags are those of recvmsg.
func receiveFile(socket, flags int) (file *os.File, pid int, err error) {
	control := make([]byte, unix.CmsgSpace(4)+unix.CmsgSpace(unix.SizeofUcred))
	var n, size int
	for {
		n, size, _, _, err = unix.Recvmsg(socket, make([]byte, 1), control, flags|unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil || n == 0 {
		return nil, 0, os.NewSyscallError("recvmsg", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:size])
	if err != nil {
		return nil, 0, err
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) == 1 {
			file = os.NewFile(uintptr(fds[0]), "handed over")
		} else if sender, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			pid = int(sender.Pid)
		}
	}
	if file == nil {
		return nil, 0, errors.New("the program handed no descriptor over")
	}
	return file, pid, nil
}

// end closes the network, after the sandbox has ended or was never made. It returns why there
// was no network.
func (n *network) end() error {
	if n == nil {
		return nil
	}
	_ = unix.Shutdown(n.socket, unix.SHUT_RDWR) // no sender is left
	<-n.done
	unix.Close(n.socket)
	n.socket = -1
	return errors.Join(n.err, n.close())
}

func (n *network) close() (err error) {
	if n.closer != nil {
		err = n.closer.Close()
		n.closer = nil
	}
	return err
}

// endNetwork closes the network of a run.
func (c *child) endNetwork() { c.noNetwork = c.network.end() }

// networkError is the error of a launch whose network could not be made.
func networkError(spec *Spec, err error) error {
	return &SetupError{Backend: spec.Launch.Backend, Step: "make the network", Err: err}
}

// networkWrapped makes the network of a wrapped command, and closes it when the process that
// sent the namespace has ended: the init, or on bwrap the command itself, with which the init
// ends.
func networkWrapped(spec *Spec) (*os.File, error) {
	ours, theirs, err := handoverPair()
	if err != nil {
		return nil, err
	}
	n := startNetwork(spec, ours, true)
	go func() {
		<-n.done
		if n.closer != nil {
			awaitEnd(n.pid)
		} else if spec.NoNetwork != nil {
			spec.NoNetwork(n.err)
		}
		_ = n.end() // the launcher has reported that the network is missing
	}()
	return theirs, nil
}

// awaitEnd waits for the end of a process. The process cannot have been reaped unnoticed: it
// was waiting for the network until now, unless it was killed.
func awaitEnd(pid int) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err == unix.EINVAL { // Linux before 5.10
		fd, err = unix.PidfdOpen(pid, 0)
	}
	if err != nil {
		return
	}
	_ = unix.SetNonblock(fd, true) // for the runtime's poller
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	poll := []unix.PollFd{{Events: unix.POLLIN}}
	_ = raw.Read(func(fd uintptr) bool {
		poll[0].Fd = int32(fd)
		n, err := unix.Poll(poll, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}
