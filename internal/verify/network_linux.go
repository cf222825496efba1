package verify

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/prober"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// arrivalTime is how long a message may take to arrive after the prober has ended. The
// kernel delivers it at once on the same machine; the rest is a reserve for a busy one.
const arrivalTime = 100 * time.Millisecond

// network listens on the host and tries to reach the listeners from inside.
func (r *Run) network() {
	loopback4, loopback6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	r.endpoint("the host's loopback", loopback4)
	r.endpoint("the host's loopback", loopback6)
	r.endpoint("an address of the host", outward(unix.AF_INET, netip.AddrFrom4([4]byte{192, 0, 2, 1})))
	r.endpoint("an address of the host", outward(unix.AF_INET6, netip.MustParseAddr("2001:db8::1")))
	r.abstractSocket()
	r.ownLoopback()
	r.interfaces()
}

// networkCheck starts a check of the network's mode.
func (r *Run) networkCheck(rules ...string) check {
	n := r.plan.Network
	return check{rules: append([]string{"network.mode"}, rules...), subject: n.Mode.String(), origin: n.Origin}
}

// reachable reports whether the command has the host's own network.
func (r *Run) reachable() bool { return r.plan.Network.Mode == policy.NetworkHost }

// outward returns the address that this machine uses to reach another one. Connecting a
// datagram socket sends nothing.
func outward(family int, to netip.Addr) netip.Addr {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return netip.Addr{}
	}
	defer unix.Close(fd)
	if unix.Connect(fd, sockaddr(to, 9)) != nil {
		return netip.Addr{}
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		return netip.Addr{}
	}
	return address(own)
}

func address(sa unix.Sockaddr) netip.Addr {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr)
	}
	return netip.Addr{}
}

func port(sa unix.Sockaddr) int {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return sa.Port
	case *unix.SockaddrInet6:
		return sa.Port
	}
	return 0
}

func sockaddr(a netip.Addr, port int) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: port}
	}
	return &unix.SockaddrInet6{Addr: a.As16(), Port: port}
}

// endpoint tries one address of the host, with a connection and a datagram.
func (r *Run) endpoint(what string, at netip.Addr) {
	if !at.IsValid() || r.reachable() && !at.IsLoopback() {
		return // there is no such address, or a firewall of the host may decide
	}
	for _, kind := range []struct {
		network, word string
		sock          int
	}{{"tcp", "a connection", unix.SOCK_STREAM}, {"udp", "a datagram", unix.SOCK_DGRAM}} {
		fd, port, err := r.listen(at, kind.sock)
		if err != nil {
			continue // the host has no such address
		}
		if r.allowed(judge.Dest{Protocol: kind.network, Addr: at, Port: port, Own: true}) {
			continue // a rule allows it, but does not promise that it can be reached
		}
		c := r.networkCheck()
		c.attempts = []attempt{r.send(kind.network, netip.AddrPortFrom(at, uint16(port)).String())}
		where := fmt.Sprintf("%s to %s, %s", kind.word, at, what)
		c.judge = func(a []answer) verdict { return r.arrival(where, r.arrived(fd, kind.sock), a[0]) }
		r.add(c)
	}
}

// send returns an attempt that connects and sends the token.
func (r *Run) send(network, address string) attempt {
	return attempt{Do: "dial", Path: prober.Text(network), To: prober.Text(address), Data: prober.Text(r.token)}
}

// allowed reports whether the rules for hosts allow the destination.
func (r *Run) allowed(d judge.Dest) bool {
	n := &r.plan.Network
	return n.Mode == policy.NetworkUser && judge.NewNetwork(n).Connect(d).Allowed
}

// arrival returns the verdict on whether a message arrived at the host.
func (r *Run) arrival(what string, arrived bool, a answer) verdict {
	switch {
	case arrived && r.reachable():
		return held("%s arrives", what)
	case arrived:
		return broken("%s arrives", what)
	case r.reachable():
		return broken("%s does not arrive: %v", what, a.Errno)
	case a.OK():
		return held("%s does not arrive", what)
	}
	return held("%s does not arrive: %v", what, a.Errno)
}

// listen opens a socket on the host.
func (r *Run) listen(at netip.Addr, kind int) (fd, number int, err error) {
	family := unix.AF_INET
	if at.Is6() {
		family = unix.AF_INET6
	}
	return r.open(family, kind, sockaddr(at, 0))
}

func (r *Run) open(family, kind int, at unix.Sockaddr) (fd, number int, err error) {
	fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, 0, err
	}
	r.cleanups = append(r.cleanups, func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, at); err != nil {
		return -1, 0, err
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(fd, 16); err != nil {
			return -1, 0, err
		}
	}
	own, err := unix.Getsockname(fd)
	return fd, port(own), err
}

// arrived reports whether the token arrived at a socket of the host. Other programs may
// connect too, so only the token counts.
func (r *Run) arrived(fd, kind int) bool {
	if r.patience.IsZero() {
		r.patience = time.Now().Add(arrivalTime)
	}
	for wait(fd, time.Until(r.patience)) {
		from := fd
		if kind == unix.SOCK_STREAM {
			conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if err != nil {
				return false
			}
			defer unix.Close(conn)
			from = conn
		}
		buf := make([]byte, len(r.token))
		if !wait(from, time.Until(r.patience)) {
			continue
		}
		if n, err := unix.Read(from, buf); err == nil && string(buf[:n]) == r.token {
			return true
		}
	}
	return false
}

// wait waits until a descriptor is readable, and reports whether it is.
func wait(fd int, long time.Duration) bool {
	for end := time.Now().Add(long); ; {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(max(0, time.Until(end)).Milliseconds()))
		if err != unix.EINTR {
			return err == nil && n > 0
		}
	}
}

// abstractSocket tries to connect to an abstract unix socket of the host. Abstract
// sockets belong to a network namespace. In mode host nothing is tried: the mode
// promises neither that they can be reached nor that they cannot.
func (r *Run) abstractSocket() {
	if r.reachable() {
		return
	}
	name := "@" + fileName(r.token)
	fd, _, err := r.open(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: name})
	if err != nil {
		return
	}
	c := r.networkCheck("sockets")
	c.attempts = []attempt{r.send("unix", name)}
	c.judge = func(a []answer) verdict {
		return r.arrival("a connection to an abstract socket of the host", r.arrived(fd, unix.SOCK_STREAM), a[0])
	}
	r.add(c)
}

// ownLoopback tries the loopback inside. The mode none promises no loopback, although
// most backends have one.
func (r *Run) ownLoopback() {
	if r.plan.Network.Mode == policy.NetworkNone {
		return
	}
	c := r.networkCheck()
	c.attempts = []attempt{{Do: "loopback"}}
	c.judge = func(a []answer) verdict {
		if !a[0].OK() {
			return broken("programs inside cannot talk over the loopback: %v", a[0].Errno)
		}
		return held("programs inside can talk over the loopback")
	}
	r.add(c)
}

// interfaces checks which network interfaces can be seen inside.
func (r *Run) interfaces() {
	n := r.plan.Network
	if n.Mode != policy.NetworkNone && n.Mode != policy.NetworkLoopback {
		return
	}
	c := check{rules: []string{"network.interfaces"}, subject: n.Mode.String(), origin: n.Origin, attempts: []attempt{{Do: "interfaces"}}}
	c.judge = func(a []answer) verdict {
		for _, name := range a[0].List {
			if string(name) != "lo" {
				return broken("the interface %s can be seen", name)
			}
		}
		return held("no interface of the host can be seen")
	}
	r.add(c)
}

// socket tries to connect to a unix socket of the host that the plan hides or grants.
// It sends nothing to the server.
func (r *Run) socket(e plan.Path) {
	c := check{rules: []string{"sockets"}, subject: e.Path, origin: e.Origin, attempts: dialAll(e.Path)}
	c.judge = func(a []answer) verdict {
		got := anyKind(a)
		switch {
		case e.Access == policy.Hidden && got.OK():
			return broken("it can be connected to")
		case e.Access == policy.Hidden:
			return held("it cannot be connected to: %v", got.Errno)
		case got.OK():
			return held("it can be connected to")
		}
		var outside []answer
		for _, attempt := range dialAll(e.Source) {
			outside = append(outside, prober.Try(attempt, nil))
		}
		if own := anyKind(outside); !own.OK() {
			return untested("nobody answers there, outside either: %v", own.Errno)
		}
		return broken("it cannot be connected to: %v", got.Errno)
	}
	r.add(c)
}

// dialAll returns attempts to connect to a unix socket, one for each type of socket.
func dialAll(path string) []attempt {
	var out []attempt
	for _, network := range []prober.Text{"unix", "unixpacket", "unixgram"} {
		out = append(out, attempt{Do: "dial", Path: network, To: prober.Text(path)})
	}
	return out
}

// anyKind returns the answer for the type that the socket has.
func anyKind(answers []answer) answer {
	for _, a := range answers {
		if a.Errno != unix.EPROTOTYPE {
			return a
		}
	}
	return answers[0]
}
