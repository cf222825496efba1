package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/internal/notify"
	"github.com/cloche-dev/cloche/internal/sysprog"
)

// A waiting is an init in a parked sandbox that waits for its command. It has its own
// namespaces, descriptors and broker already.
type waiting struct {
	launch    *backend.Launch
	inherited inherited
	child     *child
}

// enterAwaiting starts a command with an init that waits for one, and arranges that the next
// one is made later.
func enterAwaiting(ctx context.Context, spec *Spec, std [3]*os.File) (*child, error) {
	p, l := spec.Parked, spec.Launch
	in := whatIsInherited()
	w := p.spares.take(ctx, l, in)
	if w != nil && w.order(spec, std) != nil { // somebody has killed the init
		w.discard()
		w = nil
	}
	var err error
	if w == nil {
		w, err = orderNew(ctx, spec, std, in)
	}
	if err != nil {
		return nil, err
	}
	w.child.renew = p.spares.refillLater(p, l)
	return w.child, nil
}

// orderNew makes a waiting init and starts the command with it.
func orderNew(ctx context.Context, spec *Spec, std [3]*os.File, in inherited) (*waiting, error) {
	ctx, cancel := spec.bounded(ctx)
	defer cancel()
	w, err := spec.Parked.await(ctx, spec.Launch, in)
	if err != nil {
		return nil, runError(spec, nil, err)
	}
	if err = w.order(spec, std); err != nil {
		w.discard()
		return nil, asSetupError(spec.Launch, "hand the command over", err)
	}
	return w, nil
}

// await makes a waiting init. The init knows nothing of its command yet. in is what it
// inherits from this process, read by the caller before.
func (p *Parked) await(ctx context.Context, l *backend.Launch, in inherited) (*waiting, error) {
	image, err := p.image(l.Program)
	if err != nil {
		return nil, err
	}
	d := &descriptors{rawStatus: -1}
	defer d.closeChilds()
	o := sysprog.Options{Argv: l.Argv}
	if o.Files, err = p.awaitingFiles(l, d); err != nil {
		d.closeOurs()
		return nil, err
	}
	w, spec := &waiting{launch: l, inherited: in}, &Spec{Launch: l}
	proc, err := image.Run(ctx, o)
	if err == nil {
		w.child, err = programChild(spec, proc, d)
	}
	if err != nil {
		d.closeOurs()
		return nil, err
	}
	w.child.parked, w.child.tag = p, proc.Inode()
	w.child.attach(spec, d)
	if err := w.takeListener(); err != nil {
		w.discard()
		return nil, err
	}
	proc.ReapForker() // it has ended, and no command waits here
	return w, nil
}

// awaitingFiles returns the descriptors of the program. The standard streams are the null
// device, which a command without streams of its own keeps: see order.
func (p *Parked) awaitingFiles(l *backend.Launch, d *descriptors) ([]int, error) {
	in, err := openNull(os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	d.child = append(d.child, in)
	out, err := openNull(os.O_WRONLY)
	if err != nil {
		return nil, err
	}
	d.child = append(d.child, out)
	// The init reports over this socket and receives its command over it.
	ours, status, err := socketPair(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	d.rawStatus, d.child = ours, append(d.child, status)
	files := []int{int(in.Fd()), int(out.Fd()), int(out.Fd())}
	for i := range l.Files {
		fd := int(status.Fd())
		if l.Files[i].Kind != builtin.InitStatus {
			if fd, err = p.descriptor(&l.Files[i], d); err != nil {
				return nil, err
			}
		}
		files = append(files, fd)
	}
	return files, nil
}

// takeListener receives the listener of the seccomp filter, which the program sent before it
// executed the init.
func (w *waiting) takeListener() error {
	if w.launch.Guard == nil {
		return nil
	}
	listener, err := notify.ReceiveListener(w.child.statusFD)
	if err != nil {
		return fmt.Errorf("receive the listener: %w", err)
	}
	w.child.guard = guardOn(listener)
	return nil
}

// fits reports whether a new init for this launch would be the same as this one.
func (w *waiting) fits(l *backend.Launch, in inherited) bool {
	return w.launch.Program == l.Program && slices.Equal(w.launch.Argv, l.Argv) && in.umask >= 0 && w.inherited == in
}

// order sends the command to the init. A nil stream stays the null device, which the init has
// already.
func (w *waiting) order(spec *Spec, std [3]*os.File) error {
	l := spec.Launch
	if err := noNUL(l); err != nil {
		return err
	}
	w.child.guard.begin(spec, w.inherited.umask)
	order := initprog.Order{Dir: l.Dir, Path: l.Path, Args: l.Args, Env: l.Env}
	var rights []byte
	order.Streams, rights = streamRights(std)
	text := order.Bytes()
	for len(text) > 0 {
		n, err := unix.SendmsgN(w.child.statusFD, text, rights, nil, unix.MSG_NOSIGNAL)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("sendmsg", err)
		}
		if n > 0 {
			text, rights = text[n:], nil
		}
	}
	return nil
}

// streamRights returns the streams to send with an order, and which of the three they are.
func streamRights(std [3]*os.File) (streams uint32, rights []byte) {
	fds := make([]int, 0, len(std))
	for i, f := range std {
		if f != nil {
			streams |= 1 << i
			fds = append(fds, int(f.Fd()))
		}
	}
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	return streams, rights
}

// noNUL rejects strings with a NUL byte, because NUL ends each string of an order.
func noNUL(l *backend.Launch) error {
	for _, list := range [...][]string{{l.Dir, l.Path}, l.Args, l.Env} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return errors.New("a string with a NUL byte cannot be handed to a command")
			}
		}
	}
	return nil
}

// discard ends an init that has run no command.
func (w *waiting) discard() {
	c := w.child
	c.killInit()
	if !c.hasInit {
		_ = c.proc.Kill()
	}
	c.settleAtEnd()
	state, _ := c.await(time.Time{})
	c.reap(state)
	_, _, _ = c.guard.end() // it has decided nothing
	c.cleanUp()
}
