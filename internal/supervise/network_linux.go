package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A network is that of one sandbox: it is made when the launched program hands its
// namespace over, while the program goes on with the rest.
type network struct {
	socket  int
	wrapped bool          // somebody else runs the command
	done    chan struct{} // closed when the fields below are final
	closer  io.Closer     // nil if there is no network
	pid     int           // of the process that handed the namespace over
	err     error         // why it could not be made
}

var errNoNetwork = errors.New("the launch needs a network, and nobody makes it")

// handoverPair makes the socket for the namespace. Whoever sends is made known: a
// wrapped command is otherwise not.
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

// startNetwork waits for the namespace on the socket, which it takes over. It
// returns nil where the launch has none.
func startNetwork(spec *Spec, socket int, wrapped bool) *network {
	if socket <= 0 {
		return nil
	}
	n := &network{socket: socket, wrapped: wrapped, done: make(chan struct{})}
	go n.serve(spec.Network)
	return n
}

// serve makes the network and says so.
func (n *network) serve(make MakeNetwork) {
	defer close(n.done)
	namespace, stderr, err := n.receive()
	if stderr != nil {
		defer stderr.Close() // it is the command's: nobody else may keep it open
	}
	if namespace == nil {
		n.err = err // nil: the program ended before, and has its own error
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
		_ = unix.Shutdown(n.socket, unix.SHUT_RDWR) // what waits for it gives up
		return
	}
	_ = unix.Send(n.socket, []byte{1}, unix.MSG_NOSIGNAL) // if nobody is left, nobody needs it
}

// complain says why there is no network where nobody else will: the caller of a
// wrapped command hears only from the command's standard error.
func (n *network) complain(stderr *os.File) {
	if n.wrapped && stderr != nil {
		fmt.Fprintf(stderr, "cloche: cannot make the network of the sandbox: %v\n", n.err)
	}
}

// receive returns the namespace and, if it was sent before, the command's standard
// error. At the end of file there is neither.
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

// receiveFile returns the next descriptor and who sent it, if the socket tells, or
// nil at the end of file. The flags are those of recvmsg.
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

// end takes the network away, once the sandbox is gone or was never made. It
// returns why there was none.
func (n *network) end() error {
	if n == nil {
		return nil
	}
	_ = unix.Shutdown(n.socket, unix.SHUT_RDWR) // nobody is left who could send
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

// endNetwork takes the network of a run away.
func (c *child) endNetwork() { c.noNetwork = c.network.end() }

// networkError is the error of a launch whose network could not be made.
func networkError(spec *Spec, err error) error {
	return &SetupError{Backend: spec.Launch.Backend, Step: "make the network", Err: err}
}

// networkWrapped makes the network of a wrapped command, and takes it away when
// the process that asked for it has ended: the init, or on bwrap the command
// itself, with which the init ends.
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
		_ = n.end() // the launcher has told that the network is missing
	}()
	return theirs, nil
}

// awaitEnd waits for the end of a process. It waits for us until now, or has been
// killed meanwhile.
func awaitEnd(pid int) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err == unix.EINVAL { // Linux before 5.10
		fd, err = unix.PidfdOpen(pid, 0)
	}
	if err != nil {
		return
	}
	_ = unix.SetNonblock(fd, true) // for the poller of the runtime
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
