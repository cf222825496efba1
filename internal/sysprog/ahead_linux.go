//go:build amd64 || arm64

package sysprog

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/policy"
)

// An Ahead is a process that was made before its program is known. It is in its own
// namespaces, its ids are mapped, and it waits for its program: see Options.Ahead. Making the
// namespaces, especially that of the network, takes the kernel longer than all mounts of a
// sandbox; meanwhile the caller can compile the program. Without it, a start of cloche run
// takes an eighth longer.
//
// It shares the table of descriptors with the caller until its program begins, so that it has
// what the caller opens meanwhile; then it takes a copy. It sees the mounts as they were when
// it was made, or as the host propagates them.
//
// Another thread than the caller's makes it. If the caller's thread has properties of its own
// that its processes would inherit, no process is made ahead.
type Ahead struct {
	caller maker
	flags  uint64
	mapped bool
	run    *run
	// ready receives nil when the process waits and its ids are mapped, or an error.
	ready chan error
	// returned is closed when the process has executed a program or has ended.
	returned chan struct{}
	end      sync.Once
}

// aheadTime is how long a process waits for its program. It ends with its caller, by the
// parent-death signal, unless the caller ends before the process has requested that signal:
// then nothing else would end it, because it holds both ends of its socket.
const aheadTime = 2 * time.Second

var errNotReady = errors.New("the process that was made ahead has ended")

// Begin makes a process that waits for a program with these clone flags. With mapIdentity
// every id is mapped to itself, as [MapIdentity] does; the program must then begin with a
// [Block.SyncParent] for that, which is skipped.
//
// The caller passes the result to [Run] or discards it.
func Begin(flags uint64, mapIdentity bool) (*Ahead, error) {
	im, err := preludes[flags&NewNetwork != 0]()
	if err != nil {
		return nil, err
	}
	if err := onlyNamespaces(flags); err != nil {
		return nil, err
	}
	r := &run{image: im, options: Options{CloneFlags: flags, ShareFiles: true}}
	if r.sync, err = newRendezvous(); err != nil {
		return nil, err
	}
	wait := unix.NsecToTimeval(aheadTime.Nanoseconds())
	if err := unix.SetsockoptTimeval(r.sync.childEnd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		r.sync.close()
		return nil, err
	}
	r.load()
	*r.word(offsetOf(im.continues) + offsetFlags) |= recordContinues
	a := &Ahead{caller: ownThread(), flags: flags, mapped: mapIdentity, run: r, ready: make(chan error, 1), returned: make(chan struct{})}
	go a.launch()
	go a.getReady()
	return a, nil
}

// preludes are what such a process runs before its program, by whether it has its own network
// namespace.
var preludes = map[bool]func() (*Image, error){
	false: sync.OnceValues(func() (*Image, error) { return prelude(false) }),
	true:  sync.OnceValues(func() (*Image, error) { return prelude(true) }),
}

// prelude also brings the loopback up, which takes the kernel a tenth of a millisecond. The
// program does it again, which then takes no time.
func prelude(network bool) (*Image, error) {
	p := &Program{}
	b := p.For(policy.Origin{}, "wait for the program")
	b.DeathSignal(sigKill)
	if network {
		b.LoopbackUp()
	}
	b.Write(Arg{Kind: KindSync}, "?")
	b.Read(Arg{Kind: KindSync}, 1)
	b.Unshare(cloneFiles)
	b.DeathSignal(0)
	b.Exit(0) // not reached
	im, err := Load(p)
	if err == nil {
		im.continues = len(im.steps) - 2
	}
	return im, err
}

// launch makes the process, and blocks until it has executed a program or has ended.
func (a *Ahead) launch() {
	if a.caller.alike(ownThread()) {
		launch(a.run.control)
	}
	_ = unix.Shutdown(a.run.sync.childEnd, unix.SHUT_RDWR) // getReady may still wait
	close(a.returned)
}

// getReady does the parent's part when the process asks for it.
func (a *Ahead) getReady() {
	a.ready <- func() error {
		if !oneByte(unix.Read, a.run.sync.parentEnd) {
			return errNotReady
		}
		if !a.mapped {
			return nil
		}
		pid, err := pidOf(int(atomic.LoadInt32(&a.run.control.pidFD)))
		if err != nil {
			return err
		}
		return MapIdentity(pid)
	}()
}

// Discard ends a process that was not passed to [Run]. It does nothing if a is nil.
func (a *Ahead) Discard() {
	if a != nil {
		a.end.Do(a.discard)
	}
}

// discard does not wait: nobody needs to know when the process has ended.
func (a *Ahead) discard() {
	_ = unix.Shutdown(a.run.sync.childEnd, unix.SHUT_RDWR)
	go func() {
		<-a.returned
		<-a.ready
		a.close()
		if pid := a.run.control.pid; pid > 0 {
			p := &Process{Pid: int(pid), pidFD: int(a.run.control.pidFD)}
			p.destroy()
		}
	}()
}

// close releases what the process needed to wait.
func (a *Ahead) close() {
	a.run.sync.close()
	a.run.pin.Unpin()
}

// fits reports whether a run of the image would make the same process.
func (a *Ahead) fits(im *Image, o *Options) bool {
	return a.flags == o.CloneFlags && im.fork < 0 && !o.ShareFiles && a.mapped == im.syncs && (!im.syncs || im.afterSync > 0)
}

// follow makes the process run the records of another run, and waits until it has executed a
// program or ended. It returns false if the process never reached the first record: the
// process has then ended, and the run is unchanged.
func (a *Ahead) follow(r *run) bool {
	err := <-a.ready
	a.ready <- err // for discard
	if err != nil {
		return false
	}
	atomic.StoreInt32(&r.control.pidFD, a.run.control.pidFD)
	r.control.entry = r.control.first + uint64(r.image.afterSync*sizeofRecord)
	a.run.control.next = uint64(uintptr(unsafe.Pointer(r.control)))
	if !oneByte(sendNoSignal, a.run.sync.parentEnd) {
		return false
	}
	<-a.returned
	if r.control.current == 0 {
		return false
	}
	r.control.pid = a.run.control.pid
	return true
}

// runAhead is Run with a process that was made ahead. done is false if there is none that
// fits; it has then been discarded.
func (im *Image) runAhead(ctx context.Context, o Options) (p *Process, done bool, err error) {
	a := o.Ahead
	if a == nil || !a.fits(im, &o) {
		a.Discard()
		return nil, false, nil
	}
	r := &run{image: im, options: o}
	if im.syncs { // in records that are skipped
		r.sync = a.run.sync
	}
	r.load()
	defer r.pin.Unpin()
	restore := func() {}
	if im.changesIDs {
		restore = keepDumpable()
	}
	stop := r.killWhenDone(ctx)
	done = a.follow(r)
	stop()
	restore()
	if !done {
		a.Discard()
		return nil, ctx.Err() != nil, context.Cause(ctx)
	}
	a.end.Do(a.close)
	p, err = r.finish(ctx, nil)
	return p, true, err
}
