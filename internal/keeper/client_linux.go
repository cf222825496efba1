package keeper

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/supervise"
)

// helloTime is how long a keeper may take to accept a client, which otherwise runs its command itself.
const helloTime = 2 * time.Second

// A Conn is the connection of a client to its keeper.
type Conn struct {
	fd  int
	key Key
}

// Dial connects to the keeper with a key, whose socket is in a folder.
func Dial(dir string, key Key) (*Conn, error) {
	at, err := folder(dir)
	if err != nil {
		return nil, err
	}
	defer unix.Close(at)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	c := &Conn{fd: fd, key: key}
	if err = c.greet(at); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// greet connects, checks the keeper and waits until it has checked this process.
func (c *Conn) greet(at int) error {
	limit := unix.NsecToTimeval(int64(helloTime))
	// The limit for sending also holds for a keeper that accepts no connection.
	if err := errors.Join(unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := again(func() error { return unix.Connect(c.fd, &unix.SockaddrUnix{Name: in(at, string(c.key))}) }); err != nil {
		return os.NewSyscallError("connect", err)
	}
	if _, err := checkPeer(c.fd); err != nil {
		return err
	}
	var b [1]byte
	if n, err := c.read(b[:]); n != 1 || b[0] != hello {
		return errors.Join(errors.New("the keeper does not accept this process"), err)
	}
	return errors.Join(unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{}),
		unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{}))
}

// Close ends the connection, and a command of it.
func (c *Conn) Close() { unix.Close(c.fd) }

// Run has the keeper run a call, and returns the status to end with. If it was not taken, nothing has run. When the keeper has
// the call, the signals of this process go to the command.
func (c *Conn) Run(call *Call) (status int, taken bool, err error) {
	text := (&request{c.key, call}).encode()
	rights := unix.UnixRights(int(call.Files[0].Fd()), int(call.Files[1].Fd()), int(call.Files[2].Fd()))
	for len(text) > 0 {
		n, err := unix.SendmsgN(c.fd, text, rights, nil, unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, false, os.NewSyscallError("sendmsg", err) // a part of a request runs nothing
		}
		text, rights = text[n:], nil
	}
	var passed []syscall.Signal
	stop := sync.OnceFunc(supervise.ForwardTo(func(s syscall.Signal) { // not before: a signal is a byte after the request
		passed = append(passed, s)
		c.signal(s)
	}))
	defer stop()
	var a answer
	switch n, err := c.read(a[:]); {
	case err != nil || n != len(a):
		return 0, true, errors.Join(ErrGone, err)
	case a[0] == notTaken:
		stop()
		raise(passed)
		return 0, false, nil
	}
	return int(a[1]), true, nil
}

// raise gives signals that were passed on to no command their usual effect. Those that stop and continue a process have had it.
// They come to this thread, so before it goes on.
func raise(signals []syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, s := range signals {
		if s != unix.SIGTSTP && s != unix.SIGCONT {
			_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), s)
		}
	}
}

// signal passes a signal on to the command.
func (c *Conn) signal(s syscall.Signal) {
	_ = again(func() error { _, err := unix.SendmsgN(c.fd, []byte{byte(s)}, nil, nil, unix.MSG_NOSIGNAL); return err })
}

// read reads until b is full, or to the end.
func (c *Conn) read(b []byte) (done int, err error) {
	for done < len(b) {
		n, err := unix.Read(c.fd, b[done:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return done, err
		}
		done += n
	}
	return done, nil
}

func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// maxKeepers is how many keepers an agent may have. One that changes its variables for each command needs another one each time, in vain.
const maxKeepers = 4

// Start starts a keeper that serves processes like this one, with its socket in a folder, and does not wait for it. It is the program
// of this process with the arguments before, and then the key and the agent. It keeps none of the descriptors of this process.
func Start(dir string, key Key, agent int, before ...string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	entries, err := entriesOf(dir, agent)
	if err == nil && len(entries) >= maxKeepers {
		// Some may be of keepers that were killed, or of an agent that had the same pid.
		if err = clean(dir); err == nil {
			entries, err = entriesOf(dir, agent)
		}
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == string(key) && e.Type().IsRegular() }) {
		return errors.New("the keeper could not serve before")
	}
	if len(entries) >= maxKeepers {
		return fmt.Errorf("agent %d has %d keepers already", agent, len(entries))
	}
	_ = unix.CloseRange(3, 1<<30, unix.CLOSE_RANGE_CLOEXEC) // descriptors that an agent has left open; before Linux 5.11 they stay
	cmd := exec.Command("/proc/self/exe", append(before, string(key), strconv.Itoa(agent))...)
	cmd.Args[0] = "cloche"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

// entriesOf are the sockets, and what else is there, of the keepers of an agent.
func entriesOf(dir string, agent int) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	return slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), prefix(agent)) }), err
}

// Running returns the pids of the keepers with sockets in a folder.
func Running(dir string) (pids []int) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // there are none
	}
	for _, e := range entries {
		if c, err := Dial(dir, Key(e.Name())); err == nil {
			if peer, err := unix.GetsockoptUcred(c.fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				pids = append(pids, int(peer.Pid))
			}
			c.Close()
		}
	}
	return pids
}
