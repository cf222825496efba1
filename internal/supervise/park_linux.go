package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/sysprog"
)

// parked are the parts of a parked sandbox: what has to stay open while no command runs in it.
type parked struct {
	// namespaces by name. The open descriptors keep the namespaces and their mounts alive.
	namespaces map[string]*os.File
	// program is the init that starts commands.
	program *os.File
	// ruleset is the Landlock ruleset that commands enter, or nil.
	ruleset *os.File
	// lifeline is watched by that init, and by the sandbox's first process if it has one. Only
	// the supervisor holds lifelineEnd.
	lifeline, lifelineEnd *os.File

	init     *os.Process   // the first process, or nil
	initGone chan struct{} // closed when it is reaped
	children *os.File      // its list of children in /proc
	network  io.Closer     // the network that commands share, or nil

	images sync.Map // of *sysprog.Program to *sysprog.Image
	rules  atomic.Pointer[rules]
	spares spares
}

// parkTime limits how long making a parked sandbox may take.
const parkTime = time.Minute

// Park makes the sandbox of a launch that has namespaces to hold, and its network if the
// launch needs one. It returns the same errors as Start.
func Park(ctx context.Context, l *backend.Launch, network MakeNetwork) (*Parked, error) {
	if len(l.Holds) == 0 || l.Program == nil {
		return nil, &SetupError{Backend: l.Backend, Step: "park the sandbox", Detail: "the launch holds no namespaces"}
	}
	if err := prepare(l); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, parkTime)
	defer cancel()
	p := &Parked{done: make(chan struct{}), parked: parked{namespaces: map[string]*os.File{}}}
	if err := p.open(); err != nil {
		p.closeFiles()
		return nil, asSetupError(l, "open the descriptors", err)
	}
	if err := p.make(ctx, l, network); err != nil {
		p.closeFiles()
		if setup := (*SetupError)(nil); errors.As(err, &setup) {
			return nil, setup
		}
		return nil, stepError(l, nil, err)
	}
	return p, nil
}

func (p *parked) open() (err error) {
	if p.program, err = openInit(); err != nil {
		return err
	}
	p.lifeline, p.lifelineEnd, err = pipeToChild()
	return err
}

// make runs the program. The supervisor opens the namespaces in the program's last pause.
func (p *parked) make(ctx context.Context, l *backend.Launch, network MakeNetwork) error {
	null, err := openNull(os.O_RDWR)
	if err != nil {
		return err
	}
	defer null.Close()
	ours, theirs, err := socketPair(unix.SOCK_SEQPACKET) // for the ruleset
	if err != nil {
		return err
	}
	defer unix.Close(ours)
	defer theirs.Close()
	o := sysprog.Options{CloneFlags: l.Namespaces, SyncParent: func(c *sysprog.Child) error {
		if l.MapRoot && c.Round == 0 {
			return sysprog.MapIdentity(c.Pid)
		}
		if err := errors.Join(p.take(c.Pid, l.Holds), p.makeNetwork(c.Pid, l, network)); err != nil {
			return err
		}
		ruleset, _, err := receiveFile(ours, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return nil // the program sends no ruleset
		}
		p.ruleset = ruleset
		return err
	}}
	for i := range l.Program.Files {
		o.Files = append(o.Files, p.fileFor(l, i, null, theirs))
	}
	proc, err := sysprog.Run(ctx, l.Program, o)
	if err != nil {
		return err
	}
	if len(l.Files) == 0 { // the program has ended
		_, err = proc.Wait()
		return err
	}
	return p.follow(proc)
}

// fileFor returns the descriptor for a file of the program: the null device, except for files
// that the sandbox's first process needs.
func (p *parked) fileFor(l *backend.Launch, i int, null, ruleset *os.File) int {
	if own := i - l.FirstFD; own >= 0 && own < len(l.Files) {
		switch l.Files[own].Kind {
		case builtin.Lifeline:
			return int(p.lifeline.Fd())
		case builtin.Program:
			return int(p.program.Fd())
		case builtin.Ruleset:
			return int(ruleset.Fd())
		}
	}
	return int(null.Fd())
}

// take opens the namespaces of the process. The process is waiting for the supervisor, so its
// pid has not been reused.
func (p *parked) take(pid int, names []string) error {
	for _, name := range names {
		if name == builtin.AllNamespaces {
			continue // the first process holds them: see follow
		}
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
		if err != nil {
			return fmt.Errorf("hold the %s namespace: %w", name, err)
		}
		p.namespaces[name] = f
	}
	return nil
}

// makeNetwork makes the network in the namespace of the process.
func (p *parked) makeNetwork(pid int, l *backend.Launch, network MakeNetwork) error {
	if !l.Network {
		return nil
	}
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return fmt.Errorf("hold the net namespace: %w", err)
	}
	defer namespace.Close()
	if network == nil {
		err = errNoNetwork
	} else {
		p.network, err = network(namespace)
	}
	if err != nil {
		return networkError(&Spec{Launch: l}, err)
	}
	return nil
}

// follow keeps the first process, and reaps it in the background.
func (p *parked) follow(proc *sysprog.Process) error {
	defer proc.Release()
	init, err := os.FindProcess(proc.Pid)
	if err != nil {
		return err
	}
	if err := p.hold(proc.Pid); err != nil {
		_ = init.Kill()
		_, _ = init.Wait()
		return err
	}
	p.init, p.initGone = init, make(chan struct{})
	go func() {
		_, _ = init.Wait() // how it ended does not matter
		close(p.initGone)
	}()
	return nil
}

// hold opens what commands need from the first process. The process has not been reaped, so
// its pid has not been reused.
func (p *parked) hold(pid int) (err error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	p.namespaces[builtin.AllNamespaces] = os.NewFile(uintptr(fd), "pidfd")
	p.children, err = os.Open(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return fmt.Errorf("list what commands leave behind: %w (the kernel needs CONFIG_PROC_CHILDREN)", err)
	}
	return nil
}

// ended reports whether the first process has been reaped, and with it the whole sandbox is
// gone.
func (p *parked) ended() bool {
	select {
	case <-p.initGone: // nil, and never ready, if there is no first process
		return true
	default:
		return false
	}
}

// endingTime is how long a killed process may take to end. Its namespaces cannot be joined
// even before it has ended.
const endingTime = time.Second

// initEnded reports whether the first process has ended, reaped or not, or ends within
// endingTime.
func (p *parked) initEnded() bool {
	held := p.namespaces[builtin.AllNamespaces]
	if held == nil {
		return false
	}
	n, _ := pollUntil([]unix.PollFd{{Fd: int32(held.Fd()), Events: unix.POLLIN}}, time.Now().Add(endingTime))
	return n == 1
}

// retire ends the init that waits for a command: there will be none.
func (p *parked) retire() { p.spares.end() }

// end closes everything. If there is a first process, it kills it and waits for its end.
func (p *parked) end() {
	p.closeFiles()
	if p.init != nil {
		_ = p.init.Kill()
		<-p.initGone
	}
}

func (p *parked) closeFiles() {
	for _, f := range []*os.File{p.lifelineEnd, p.lifeline, p.program, p.ruleset, p.children} {
		if f != nil {
			f.Close()
		}
	}
	for _, f := range p.namespaces {
		f.Close()
	}
	if p.network != nil {
		_ = p.network.Close() // nothing is left that could use it
	}
}

// image returns the loaded program. It is loaded once for all commands.
func (p *parked) image(program *sysprog.Program) (*sysprog.Image, error) {
	if im, ok := p.images.Load(program); ok {
		return im.(*sysprog.Image), nil
	}
	im, err := sysprog.Load(program)
	if err == nil {
		p.images.Store(program, im)
	}
	return im, err
}
