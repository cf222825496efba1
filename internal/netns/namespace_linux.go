package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/policy"
)

// A Namespace is the network namespace of a sandbox, seen from outside. Its methods
// are safe for concurrent use.
type Namespace struct {
	mu    sync.RWMutex // held while the files are used or closed
	file  *os.File     // nil once it is closed
	users *os.File     // the user namespace that owns it; nil if it is our own
	inode uint64
	owner ownerCache
	diag  diagSocket
	ready pool
}

// Open opens a namespace from a file of /proc/PID/ns. The file stays the caller's.
func Open(netns *os.File) (*Namespace, error) {
	fd, err := unix.FcntlInt(netns.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	n := &Namespace{file: os.NewFile(uintptr(fd), "net namespace")}
	if err := n.findOwner(); err != nil {
		n.Close()
		return nil, fmt.Errorf("cannot use the sandbox's network namespace: %w", err)
	}
	return n, nil
}

// OpenOwn opens the namespace of this process. It can only be asked about its sockets.
func OpenOwn() (*Namespace, error) {
	var self unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &self); err != nil {
		return nil, os.NewSyscallError("stat", err)
	}
	return &Namespace{inode: self.Ino}, nil
}

// findOwner asks the kernel for the user namespace that owns the network namespace.
func (n *Namespace) findOwner() error {
	var own, owner, self unix.Stat_t
	if err := unix.Fstat(int(n.file.Fd()), &self); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	n.inode = self.Ino
	fd, err := unix.IoctlRetInt(int(n.file.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return fmt.Errorf("ioctl NS_GET_USERNS: %w", err)
	}
	users := os.NewFile(uintptr(fd), "user namespace")
	if err := errors.Join(unix.Fstat(fd, &owner), unix.Stat("/proc/self/ns/user", &own)); err != nil {
		users.Close()
		return fmt.Errorf("cannot compare user namespaces: %w", err)
	}
	if owner.Ino == own.Ino {
		users.Close() // the kernel refuses to join our own
		return nil
	}
	n.users = users
	return nil
}

// Close closes the namespace. Its sockets and links stay.
func (n *Namespace) Close() error {
	n.diag.close()
	n.ready.close()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.file == nil {
		return fs.ErrClosed
	}
	if n.users != nil {
		n.users.Close()
	}
	n.file.Close()
	n.file, n.users = nil, nil
	return nil
}

// Own reports whether this is the namespace of this process, or may be. Nothing must be
// set up there.
func (n *Namespace) Own() bool {
	var own unix.Stat_t
	err := unix.Stat("/proc/self/ns/net", &own)
	return err != nil || own.Ino == n.inode
}

// Inode returns the inode number of the namespace.
func (n *Namespace) Inode() uint64 { return n.inode }

// A request is a descriptor to make inside: a socket, or an open file.
type request struct {
	domain, kind, protocol int
	path                   string // of a file
	label                  string
}

func socketRequest(domain, kind, protocol int, label string) request {
	return request{domain: domain, kind: kind | unix.SOCK_CLOEXEC, protocol: protocol, label: label}
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

// open returns the descriptors for the requests, in order: prepared ones if there are
// any, otherwise new ones. They are close-on-exec.
func (n *Namespace) open(requests ...request) ([]int, error) {
	fds := make([]int, len(requests))
	var missing []request
	for i, r := range requests {
		if fds[i] = n.ready.take(r); fds[i] < 0 {
			missing = append(missing, r)
		}
	}
	if len(missing) == 0 {
		return fds, nil
	}
	made, err := n.create(missing, nil)
	for i := range fds {
		switch {
		case err != nil && fds[i] >= 0:
			unix.Close(fds[i])
		case err == nil && fds[i] < 0:
			fds[i], made = made[0], made[1:]
		}
	}
	if err != nil {
		return nil, err
	}
	return fds, nil
}

// openOne makes one descriptor inside.
func (n *Namespace) openOne(r request) (int, error) {
	fds, err := n.open(r)
	if err != nil {
		return -1, err
	}
	return fds[0], nil
}

// create runs a child that joins the namespace and makes the descriptors, in the table
// that it shares with this process. If more is not nil, the child also runs the steps
// that more adds.
func (n *Namespace) create(requests []request, more func(block func(label string) sysprog.Block)) ([]int, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.file == nil {
		return nil, fs.ErrClosed
	}
	p := &sysprog.Program{}
	o := sysprog.Options{ShareFiles: true}
	block := func(label string) sysprog.Block { return p.For(policy.Origin{}, label) }
	if n.users != nil {
		block("join the user namespace of the network").Setns(p.AddFile("user namespace"), sysprog.NewUser)
		o.Files = append(o.Files, int(n.users.Fd()))
	}
	block("join the network namespace").Setns(p.AddFile("net namespace"), sysprog.NewNetwork)
	o.Files = append(o.Files, int(n.file.Fd()))
	var results []sysprog.Arg
	for _, r := range requests {
		b := block(r.label)
		if r.path != "" {
			results = append(results, b.Openat(sysprog.Cwd(), r.path, sysprog.OpenReadWrite|sysprog.OpenNonblock, 0))
		} else {
			results = append(results, b.CallResult("socket", sysprog.Const(uint64(r.domain)), sysprog.Const(uint64(r.kind)), sysprog.Const(uint64(r.protocol))))
		}
	}
	if more != nil {
		more(block)
	}
	block("end").Exit(0)
	o.Results = make([]int64, len(p.Steps))
	err := runAndWait(context.Background(), p, o)
	fds := make([]int, 0, len(results))
	for _, a := range results {
		if fd := o.Results[a.Value]; fd >= 0 && err == nil {
			fds = append(fds, int(fd))
		} else if fd >= 0 { // made before the step that failed
			unix.Close(int(fd))
		}
	}
	return fds, err
}

// runAndWait runs a program and waits until it ends.
func runAndWait(ctx context.Context, p *sysprog.Program, o sysprog.Options) error {
	child, err := sysprog.Run(ctx, p, o)
	if err != nil {
		return err
	}
	_, err = child.Wait()
	if errors.Is(err, sysprog.ErrNoStatus) {
		return nil // the embedding program reaped it; all steps have run
	}
	return err
}

// Needs says what a network will need in a namespace.
type Needs struct {
	// Link is the kind of link, or empty.
	Link policy.Link
	// TCP and UDP are the numbers of IPv4 listeners.
	TCP, UDP int
	// Owners says that Owner will be called.
	Owners bool
	// Ping lets commands send echo requests without privileges, which the kernel allows to
	// no group in a new namespace. It is best effort: a read-only /proc, for instance,
	// prevents it.
	Ping bool
	// LowPorts lets commands listen on ports below 1024 without privileges. These ports are
	// the sandbox's own. It is best effort, too.
	LowPorts bool
}

// Prepare makes sockets in advance, all with one child: a child for each would take
// more time than everything else. If a socket cannot be made, it is made later, when it
// is needed, and only then is a failure an error.
func (n *Namespace) Prepare(needs Needs) {
	requests := linkRequests(needs.Link)
	for range needs.TCP {
		requests = append(requests, inetRequest(unix.AF_INET, unix.SOCK_STREAM))
	}
	for range needs.UDP {
		requests = append(requests, inetRequest(unix.AF_INET, unix.SOCK_DGRAM))
	}
	if needs.Owners {
		requests = append(requests, diagRequest())
	}
	fds, err := n.create(requests, func(block func(string) sysprog.Block) {
		if n.Own() { // the machine's own settings stay as they are
			return
		}
		if needs.Ping {
			allowPing(block)
		}
		if needs.LowPorts {
			allowLowPorts(block)
		}
	})
	if err == nil {
		n.ready.put(requests, fds)
	}
}

// allowPing changes a setting of the namespace. It writes three values one after the
// other, and the last one that the kernel accepts counts: the user's own group, group 0
// (to which bubblewrap maps it at first), and all groups (which only works if all are
// mapped).
func allowPing(block func(string) sysprog.Block) {
	const file = "/proc/sys/net/ipv4/ping_group_range"
	group := strconv.Itoa(os.Getegid())
	b := block("let commands send pings").Ignoring(sysprog.ENOENT, sysprog.EACCES, sysprog.EPERM, sysprog.EROFS, sysprog.EINVAL)
	for _, groups := range []string{group + " " + group, "0 0", "0 2147483647"} {
		b.WriteFile(file, groups)
	}
}

// allowLowPorts changes a setting of the namespace. Linux before 4.11 does not have it.
func allowLowPorts(block func(string) sysprog.Block) {
	block("let commands listen on low ports").Ignoring(sysprog.ENOENT, sysprog.EACCES, sysprog.EPERM, sysprog.EROFS).
		WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")
}

// A pool has descriptors that were made in advance.
type pool struct {
	mu     sync.Mutex
	fds    map[request][]int
	closed bool
}

// take returns a descriptor, or -1 if there is none.
func (p *pool) take(r request) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := p.fds[r]
	if len(have) == 0 {
		return -1
	}
	p.fds[r] = have[1:]
	return have[0]
}

func (p *pool) put(requests []request, fds []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fds == nil {
		p.fds = map[request][]int{}
	}
	for i, fd := range fds {
		if p.closed {
			unix.Close(fd)
		} else {
			p.fds[requests[i]] = append(p.fds[requests[i]], fd)
		}
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fds := range p.fds {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	p.fds, p.closed = nil, true
}
