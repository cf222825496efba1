package netns

import (
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/sysprog"
)

// Needs are what a network will need of a namespace at once.
type Needs struct {
	// Link is the kind of link, or empty.
	Link string
	// TCP and UDP count listeners of IPv4.
	TCP, UDP int
	// Owners: connections will be asked for their owners.
	Owners bool
	// Ping lets commands send echo requests without privileges: the kernel lets no
	// group of a new namespace do so. It is best effort, a /proc that is read-only
	// for instance is in the way.
	Ping bool
	// LowPorts lets commands listen on ports below 1024, which takes a privilege
	// otherwise. The ports are those of the sandbox alone. It is best effort, too.
	LowPorts bool
}

// Prepare makes sockets in advance, all by one child: a child for each would take
// more time than all the rest. What could not be made is made, or is an error,
// when it is needed.
func (n *Namespace) Prepare(needs Needs) {
	var requests []request
	switch needs.Link {
	case KindTUN:
		requests = append(requests, tunRequest(), routeRequest())
	case KindVeth:
		requests = append(requests, packetRequest(), routeRequest())
	}
	for range needs.TCP {
		requests = append(requests, inetRequest(unix.AF_INET, unix.SOCK_STREAM))
	}
	for range needs.UDP {
		requests = append(requests, inetRequest(unix.AF_INET, unix.SOCK_DGRAM))
	}
	if needs.Owners {
		requests = append(requests, diagRequest())
	}
	more := func(block func(string) sysprog.Block) {
		if n.Own() { // the machine's own settings stay as they are
			return
		}
		if needs.Ping {
			allowPing(block)
		}
		if needs.LowPorts {
			allowLowPorts(block)
		}
	}
	if fds, err := n.create(requests, more); err == nil {
		n.ready.put(requests, fds)
	}
}

// The descriptors that are made inside.

func tunRequest() request { return request{path: tunDevice, label: "open " + tunDevice} }

func packetRequest() request {
	return socketRequest(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, 0, "make a packet socket")
}

func routeRequest() request {
	return socketRequest(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, "make a netlink socket")
}

func diagRequest() request {
	return socketRequest(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG, "make a socket for socket diagnostics")
}

func inetRequest(family, kind int) request {
	return socketRequest(family, kind|unix.SOCK_NONBLOCK, 0, "make a socket")
}

// allowPing writes a setting of the namespace that the writer is in. All groups can
// be named where all are mapped, else only the user's own, by its number or, as
// bubblewrap maps it at first, as 0.
func allowPing(block func(string) sysprog.Block) {
	const file = "/proc/sys/net/ipv4/ping_group_range"
	group := strconv.Itoa(os.Getegid())
	b := block("let commands send pings").Ignoring(sysprog.ENOENT, sysprog.EACCES, sysprog.EPERM, sysprog.EROFS, sysprog.EINVAL)
	for _, groups := range []string{group + " " + group, "0 0", "0 2147483647"} {
		b.WriteFile(file, groups)
	}
}

// allowLowPorts writes a setting of the namespace that the writer is in. A kernel
// before Linux 4.11 does not have it.
func allowLowPorts(block func(string) sysprog.Block) {
	block("let commands listen on low ports").Ignoring(sysprog.ENOENT, sysprog.EACCES, sysprog.EPERM, sysprog.EROFS).
		WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")
}

// A pool holds descriptors that were made in advance.
type pool struct {
	mu     sync.Mutex
	fds    []pooled
	closed bool
}

type pooled struct {
	request request
	fd      int
}

// take returns a descriptor for each request, -1 where there is none, and the
// requests that are left.
func (p *pool) take(requests []request) (fds []int, missing []request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range requests {
		fd := p.find(r)
		if fd < 0 {
			missing = append(missing, r)
		}
		fds = append(fds, fd)
	}
	return fds, missing
}

func (p *pool) find(r request) int {
	for i, have := range p.fds {
		if have.request == r {
			p.fds = append(p.fds[:i], p.fds[i+1:]...)
			return have.fd
		}
	}
	return -1
}

func (p *pool) put(requests []request, fds []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, fd := range fds {
		if p.closed {
			unix.Close(fd)
		} else {
			p.fds = append(p.fds, pooled{requests[i], fd})
		}
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, have := range p.fds {
		unix.Close(have.fd)
	}
	p.fds, p.closed = nil, true
}
