package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/policy"
)

// A Namespace is the network namespace of a sandbox, seen from outside. Its
// methods are safe for concurrent use.
type Namespace struct {
	mu    sync.RWMutex // held to use the files, and to close them
	file  *os.File     // nil once it is closed
	users *os.File     // the user namespace that owns it; nil if that is our own
	inode uint64
	owner ownerCache
	diag  diagSocket
	ready pool
}

// Open takes hold of a namespace, a file of /proc/PID/ns. The file stays the
// caller's.
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

// findOwner asks the kernel for the user namespace that the network belongs to.
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
		users.Close() // to join it once more would be refused
		return nil
	}
	n.users = users
	return nil
}

// Close lets go of the namespace. Sockets and links of it stay.
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

// Own reports whether it is the namespace that this process is in itself, or that
// cannot be told: nothing must be set up there.
func (n *Namespace) Own() bool {
	var own unix.Stat_t
	err := unix.Stat("/proc/self/ns/net", &own)
	return err != nil || own.Ino == n.inode
}

// Inode returns the number that the kernel knows the namespace by.
func (n *Namespace) Inode() uint64 { return n.inode }

// A request is a descriptor to be made inside: a socket, or a file to be opened.
type request struct {
	domain, kind, protocol int
	path                   string // of a file
	label                  string
}

func socketRequest(domain, kind, protocol int, label string) request {
	return request{domain: domain, kind: kind | unix.SOCK_CLOEXEC, protocol: protocol, label: label}
}

// open makes the descriptors inside, in their order, or takes those that were
// prepared. They are close-on-exec.
func (n *Namespace) open(requests ...request) ([]int, error) {
	fds, missing := n.ready.take(requests)
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

// create makes descriptors inside, and then lets the child do more.
func (n *Namespace) create(requests []request, more func(func(label string) sysprog.Block)) ([]int, error) {
	p, results := &sysprog.Program{}, []sysprog.Arg(nil)
	files, err := n.enter(p, func(b func(string) sysprog.Block) {
		for _, r := range requests {
			results = append(results, r.add(b(r.label)))
		}
		if more != nil {
			more(b)
		}
	})
	if err != nil {
		return nil, err
	}
	got := make([]int64, len(p.Steps))
	err = n.run(p, files, got)
	fds := make([]int, 0, len(results))
	for _, a := range results {
		if fd := got[a.Value]; fd >= 0 && err == nil {
			fds = append(fds, int(fd))
		} else if fd >= 0 { // made before the step that failed
			unix.Close(int(fd))
		}
	}
	return fds, err
}

func (r request) add(b sysprog.Block) sysprog.Arg {
	if r.path != "" {
		return b.Openat(sysprog.Cwd(), r.path, sysprog.OpenReadWrite|sysprog.OpenNonblock, 0)
	}
	return b.CallResult("socket", sysprog.Const(uint64(r.domain)), sysprog.Const(uint64(r.kind)), sysprog.Const(uint64(r.protocol)))
}

// enter builds a program whose steps run inside, and returns its files.
func (n *Namespace) enter(p *sysprog.Program, steps func(func(label string) sysprog.Block)) ([]*os.File, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.file == nil {
		return nil, fs.ErrClosed
	}
	block := func(label string) sysprog.Block { return p.For(policy.Origin{}, label) }
	var files []*os.File
	if n.users != nil {
		block("join the user namespace of the network").Setns(p.AddFile("user namespace"), sysprog.NewUser)
		files = append(files, n.users)
	}
	block("join the network namespace").Setns(p.AddFile("net namespace"), sysprog.NewNetwork)
	files = append(files, n.file)
	steps(block)
	block("end").Exit(0)
	return files, nil
}

// run runs a program of enter.
func (n *Namespace) run(p *sysprog.Program, files []*os.File, results []int64) error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.file == nil {
		return fs.ErrClosed
	}
	o := sysprog.Options{ShareFiles: true, Results: results}
	for _, f := range files {
		o.Files = append(o.Files, int(f.Fd()))
	}
	child, err := sysprog.Run(context.Background(), p, o)
	if err != nil {
		return err
	}
	_, err = child.Wait()
	if errors.Is(err, sysprog.ErrNoStatus) {
		return nil // reaped by the program that uses this one; all steps have run
	}
	return err
}
