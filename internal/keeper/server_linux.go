package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Client is a call that a keeper serves.
type Client struct {
	*Call
	// PID is the client's process, which waits.
	PID int

	mu      sync.Mutex
	deliver func(syscall.Signal)
	early   []syscall.Signal
}

// Deliver has the client's signals delivered, with those that have come already. The end of the client is SIGKILL.
func (c *Client) Deliver(to func(syscall.Signal)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliver = to
	for _, s := range c.early {
		to(s)
	}
	c.early = nil
}

func (c *Client) signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deliver == nil {
		c.early = append(c.early, s)
		return
	}
	c.deliver(s)
}

// Serve is the keeper: it serves clients with a key until the agent ends or no client comes for [Idle], and then waits for those that it
// serves. handle runs a call and returns its status, or false if it has run nothing and the client is to do so itself. Its
// context ends with the client, which SIGKILL also tells.
//
// A keeper that cannot serve leaves an empty file with the name of its socket, so that no other one is started in vain.
func Serve(dir string, key Key, agent int, handle func(context.Context, *Client) (status int, taken bool)) error {
	err := serve(dir, key, agent, handle)
	isName := strings.Trim(string(key), "-0123456789abcdef") == ""
	if err != nil && isName && running(agent) {
		if f, noteErr := os.OpenFile(filepath.Join(dir, string(key)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); noteErr == nil {
			f.Close()
		}
	}
	return err
}

// running reports whether there is a process with a pid.
func running(pid int) bool {
	_, err := startOf(pid)
	return err == nil
}

func serve(dir string, key Key, agent int, handle func(context.Context, *Client) (status int, taken bool)) error {
	held, err := unix.PidfdOpen(agent, 0)
	if err != nil {
		return fmt.Errorf("agent %d: %w", agent, os.NewSyscallError("pidfd_open", err))
	}
	defer unix.Close(held)
	// The key has the start time of the agent, so the descriptor is that agent's.
	if own, err := KeyOf(agent); err != nil || own != key {
		return errors.Join(errors.New("this process is not like the one that has started it"), err)
	}
	listener, remove, err := listen(dir, key)
	if err != nil || listener == nil {
		return err
	}
	s := &server{key: key, handle: handle, room: room(), alarm: time.NewTimer(Idle)}
	defer s.clients.Wait()
	// Before that wait: the next keeper takes the name of a socket that is closed, and must not lose it.
	defer listener.Close()
	defer remove()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = again(func() error {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(held), Events: unix.POLLIN}}, -1)
			return err
		})
	}()
	go func() {
		for {
			select {
			case <-ended:
			case <-s.alarm.C:
				if s.busy() {
					continue
				}
			}
			remove()
			listener.Close()
			return
		}
	}()
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			time.Sleep(fullPause) // commands that end make room; the client runs its command itself if it takes too long
			continue
		}
		if err != nil {
			return err
		}
		if !s.begin() {
			conn.Close() // the client runs its command itself
			continue
		}
		s.clients.Go(func() { defer s.end(); s.serve(conn) })
	}
}

// listen makes the socket. It returns nil if another keeper has it. remove removes it.
func listen(dir string, key Key) (_ *net.UnixListener, remove func(), err error) {
	at, lock, err := lockFolder(dir)
	if err != nil {
		return nil, nil, err
	}
	defer lock.Close() // and unlocks it
	if sweep(at, dir, key) {
		unix.Close(at)
		return nil, nil, nil
	}
	name := in(at, string(key))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		unix.Close(at)
		return nil, nil, err
	}
	l.SetUnlinkOnClose(false)
	return l, sync.OnceFunc(func() {
		_ = os.Remove(name)
		unix.Close(at)
	}), nil
}

// lockFolder opens the folder of the sockets, and locks it until lock is closed.
func lockFolder(dir string) (at int, lock *os.File, err error) {
	if at, err = folder(dir); err != nil {
		return -1, nil, err
	}
	if lock, err = os.Open(dir); err == nil {
		if err = again(func() error { return unix.Flock(int(lock.Fd()), unix.LOCK_EX) }); err == nil {
			return at, lock, nil
		}
		lock.Close()
		err = os.NewSyscallError("flock", err)
	}
	unix.Close(at)
	return -1, nil, err
}

// clean removes what keepers have left that do not run any more.
func clean(dir string) error {
	at, lock, err := lockFolder(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	defer unix.Close(at)
	sweep(at, dir, "")
	return nil
}

// sweep removes the sockets of keepers that were killed, and what keepers of ended agents have left. It reports whether another keeper has
// the key's.
func sweep(at int, dir string, key Key) (taken bool) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Type() != os.ModeSocket {
			agent, _, _ := strings.Cut(e.Name(), "-")
			if pid, err := strconv.Atoi(agent); err == nil && !running(pid) {
				_ = os.Remove(in(at, e.Name()))
			}
			continue
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return false
		}
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: in(at, e.Name())})
		unix.Close(fd)
		switch {
		case err == unix.ECONNREFUSED:
			_ = os.Remove(in(at, e.Name()))
		case e.Name() == string(key) && err != unix.ENOENT:
			taken = true
		}
	}
	return taken
}

// descriptorsOfOne is at least how many descriptors one command takes, with some of its connections: there must be enough for those that run.
const descriptorsOfOne = 32

// fullPause is the time between two attempts to accept a client where there are no descriptors.
const fullPause = 10 * time.Millisecond

// room is how many commands may run at the same time.
func room() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 1
	}
	return int(min(l.Cur, 1<<20) / descriptorsOfOne)
}

type server struct {
	key     Key
	handle  func(context.Context, *Client) (int, bool)
	room    int
	clients sync.WaitGroup

	mu     sync.Mutex
	served int
	alarm  *time.Timer
}

// begin reports whether there is room for another client.
func (s *server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served >= s.room {
		return false
	}
	s.served++
	return true
}

func (s *server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served--; s.served == 0 {
		s.alarm.Reset(Idle)
	}
}

func (s *server) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served > 0
}

// serve serves one client.
func (s *server) serve(conn *net.UnixConn) {
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	var pid int
	if err := errors.Join(raw.Control(func(fd uintptr) { pid, err = checkPeer(int(fd)) }), err); err != nil {
		return
	}
	if _, err := conn.Write([]byte{hello}); err != nil {
		return
	}
	r, err := receive(func(b, oob []byte) (int, int, error) {
		n, oobn, _, _, err := conn.ReadMsgUnix(b, oob)
		return n, oobn, err
	})
	a := answer{notTaken}
	if errors.Is(err, io.EOF) {
		return
	}
	if err != nil {
		_, _ = conn.Write(a[:]) // for lack of descriptors, for example: nothing has run
		return
	}
	if r.key == s.key {
		if status, taken := s.run(conn, &Client{Call: r.Call, PID: pid}); taken {
			a = answer{finished, byte(status)}
		}
	}
	closeAll(r.Files) // before the client ends, so that nobody waits for the end of a pipe
	_, _ = conn.Write(a[:])
}

// run runs a call, and passes the client's signals on.
func (s *server) run(conn *net.UnixConn, c *Client) (status int, taken bool) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for b := make([]byte, 16); ; {
			n, err := conn.Read(b)
			for _, signal := range b[:n] {
				c.signal(syscall.Signal(signal))
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			if err != nil || n == 0 && !errors.Is(err, io.ErrShortBuffer) {
				cancel()
				c.signal(unix.SIGKILL)
				return
			}
		}
	}()
	status, taken = s.handle(ctx, c)
	_ = conn.SetReadDeadline(time.Unix(1, 0))
	<-over
	cancel()
	return status, taken
}
