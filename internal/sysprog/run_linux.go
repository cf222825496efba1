//go:build amd64 || arm64

package sysprog

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A run is one execution of an image.
type run struct {
	image   *Image
	options Options
	memory  []uint64 // words, for alignment
	control *control
	pin     runtime.Pinner
	sync    *rendezvous // nil if the program does not wait for its parent
}

// Run runs the image in a new process: see the function [Run].
func (im *Image) Run(ctx context.Context, o Options) (*Process, error) {
	if err := im.check(o); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if p, done, err := im.runAhead(ctx, o); done {
		return p, err
	}
	r := &run{image: im, options: o}
	if im.syncs {
		var err error
		if r.sync, err = newRendezvous(); err != nil {
			return nil, err
		}
		defer r.sync.close()
	}
	r.load()
	defer r.pin.Unpin()
	return r.start(ctx)
}

// check compares the options with what the program needs.
func (im *Image) check(o Options) error {
	if got, want := len(o.Files), len(im.program.Files); got != want {
		return fmt.Errorf("the program has %d files, and %d descriptors were passed", want, got)
	}
	for i, fd := range o.Files {
		if fd < 0 || fd > math.MaxInt32 {
			return fmt.Errorf("file %d (%s): %d is not a descriptor", i, visible(im.program.Files[i]), fd)
		}
	}
	if im.syncs != (o.SyncParent != nil) {
		return fmt.Errorf("the program waits for its parent: %v, SyncParent is given: %v; both or neither", im.syncs, o.SyncParent != nil)
	}
	if got, want := len(o.Texts), len(im.program.Texts); got != want {
		return fmt.Errorf("the program has %d texts, and %d were passed", want, got)
	}
	if err := noNUL(o.Env...); err != nil {
		return fmt.Errorf("the environment: %w", err)
	}
	if err := noNUL(o.Argv...); err != nil {
		return fmt.Errorf("the arguments: %w", err)
	}
	if err := noNUL(o.Texts...); err != nil {
		return fmt.Errorf("the texts: %w", err)
	}
	if n := len(im.program.Steps); o.Results != nil && len(o.Results) < n {
		return fmt.Errorf("there is room for %d results, and the program has %d steps", len(o.Results), n)
	}
	if o.ShareFiles {
		if err := im.program.validateSharing(); err != nil {
			return err
		}
	}
	return onlyNamespaces(o.CloneFlags)
}

// load copies the image and fills in the values of this run.
func (r *run) load() {
	size := len(r.image.memory)
	size += vectorSize(r.options.Env) + vectorSize(r.options.Argv) + vectorSize(r.options.Texts)
	r.memory = make([]uint64, (size+wordSize-1)/wordSize)
	r.pin.Pin(unsafe.SliceData(r.memory))
	r.control = (*control)(unsafe.Pointer(unsafe.SliceData(r.memory)))
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(r.memory))), len(r.memory)*wordSize)
	copy(bytes, r.image.memory)
	base := uint64(uintptr(unsafe.Pointer(r.control)))
	var ends [2]int
	if r.sync != nil {
		ends = [2]int{r.sync.childEnd, r.sync.parentEnd}
	}
	r.image.place(bytes, base, r.options.Files, ends)
	r.putTexts(bytes, base)
	r.control.flags = r.options.CloneFlags | cloneVM | cloneVfork | clonePidFD | sigchld
	if r.options.ShareFiles {
		r.control.flags |= cloneFiles
	}
	r.control.blocked = ^uint64(0)
	r.control.pidFD = -1
}

func (r *run) word(offset int) *uint64 { return &r.memory[offset/wordSize] }

// vectorSize returns the size of the array of addresses and the strings, aligned for what
// follows.
func vectorSize(list []string) int {
	size := (len(list) + 1) * wordSize
	for _, s := range list {
		size += len(s) + 1
	}
	return (size + wordSize - 1) / wordSize * wordSize
}

// putTexts puts the strings of the run after the image, and their addresses where the program
// needs them.
func (r *run) putTexts(bytes []byte, base uint64) {
	environ := len(r.image.memory)
	argv := environ + r.putVector(bytes, base, environ, r.options.Env)
	texts := argv + r.putVector(bytes, base, argv, r.options.Argv)
	r.putVector(bytes, base, texts, r.options.Texts)
	for _, use := range r.image.texts {
		switch use.kind {
		case KindEnviron:
			*r.word(use.offset) = base + uint64(environ)
		case KindArgv:
			*r.word(use.offset) = base + uint64(argv)
		default: // an entry of the vector
			*r.word(use.offset) = *r.word(texts + use.index*wordSize)
		}
	}
}

// putVector puts a NULL-terminated array of strings at an offset and returns its size.
func (r *run) putVector(bytes []byte, base uint64, array int, list []string) int {
	text := array + (len(list)+1)*wordSize
	for i, s := range list {
		*r.word(array + i*wordSize) = base + uint64(text)
		text += copy(bytes[text:], s) + 1
	}
	return vectorSize(list)
}

// start launches the child and returns the outcome.
func (r *run) start(ctx context.Context) (*Process, error) {
	restore := func() {}
	if r.image.changesIDs {
		restore = keepDumpable()
	}
	stop := r.killWhenDone(ctx)
	r.serve()
	if r.image.fork >= 0 {
		launchShort(r.control) // into namespaces that exist already
	} else {
		launch(r.control)
	}
	syncErr := r.finishSync()
	stop()
	restore()
	return r.finish(ctx, syncErr)
}

// finish returns the process or the error of the run.
func (r *run) finish(ctx context.Context, syncErr error) (*Process, error) {
	runtime.KeepAlive(r.options.Files)
	if r.control.pid < 0 {
		return nil, &CloneError{Flags: r.options.CloneFlags, Errno: syscall.Errno(-r.control.pid)}
	}
	r.copyResults()
	p := &Process{Pid: int(r.control.pid), pidFD: int(r.control.pidFD)}
	p, err := r.outcome(p)
	switch {
	case syncErr != nil:
		err = syncErr
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if err != nil && p != nil {
		p.destroy()
	}
	if err != nil {
		return nil, err
	}
	p.output = r.output()
	return p, nil
}

// copyResults fills Options.Results, up to the last step that ran.
func (r *run) copyResults() {
	if r.options.Results == nil {
		return
	}
	for i := range r.options.Results {
		r.options.Results[i] = -1
	}
	if r.control.current == 0 {
		return
	}
	last := int(r.control.current-r.control.first) / sizeofRecord
	for n := range last + 1 {
		step := r.image.steps[n]
		if !isMacro(r.image.program.Steps[step].Call) {
			r.options.Results[step] = int64(*r.word(offsetOf(n) + offsetResult))
		}
	}
}

// output copies the bytes that the program returned.
func (r *run) output() []byte {
	if r.image.outputSize == 0 {
		return nil
	}
	at := (*byte)(unsafe.Pointer(r.word(r.image.output)))
	return append([]byte(nil), unsafe.Slice(at, r.image.outputSize)...)
}

// outcome returns the process that runs the last step, or an error and the process that still
// has to be reaped, if there is one.
func (r *run) outcome(p *Process) (*Process, error) {
	err := r.stepError()
	if r.control.forked == 0 {
		if err != nil && err.Errno == 0 && err.Signal == 0 {
			err.Signal = p.endedBy()
		}
		return p, asError(err)
	}
	forked := &Process{Pid: int(r.control.forked), pidFD: -1, forker: p}
	if !r.forkReturned() {
		// The forker was killed, and the new process may still run in this memory.
		status, waitErr := forked.reapForker()
		forked.destroy()
		if waitErr != nil {
			status = syscall.WaitStatus(unix.SIGKILL)
		}
		return nil, r.killed(status.Signal())
	}
	if err != nil {
		return forked, err
	}
	fd, openErr := unix.PidfdOpen(forked.Pid, 0)
	if openErr != nil {
		return forked, fmt.Errorf("cannot hold the process %d: pidfd_open: %w", forked.Pid, openErr)
	}
	forked.pidFD = fd
	return forked, nil
}

// forkReturned reports whether the process that forked continued after the new one had
// executed a program or ended.
func (r *run) forkReturned() bool {
	return r.image.fork >= 0 && *r.word(offsetOf(r.image.fork) + offsetResult) == uint64(r.control.forked)
}

// asError prevents a nil pointer from becoming a non-nil error.
func asError(err *StepError) error {
	if err == nil {
		return nil
	}
	return err
}

// stepError returns the step that failed or did not finish, or nil.
func (r *run) stepError() *StepError {
	n := int(r.control.current-r.control.first) / sizeofRecord
	i := 0
	if r.control.current != 0 { // otherwise it was killed before the first
		i = r.image.steps[n]
	} else {
		n = 0
	}
	e := &StepError{Index: i, Step: r.image.program.Steps[i]}
	if r.control.failed == 0 {
		if e.Step.ends() && r.control.current != 0 {
			return nil
		}
		return e
	}
	e.Result = *r.word(offsetOf(n) + offsetResult)
	made := *r.word(offsetOf(n) + offsetNumber) != numberXor
	if errno := -e.Result; made && errno > 0 && errno < 4096 {
		e.Errno, e.Result = syscall.Errno(errno), math.MaxUint64
	}
	return e
}

func (r *run) killed(s syscall.Signal) error {
	e := r.stepError()
	if e == nil {
		i := len(r.image.program.Steps) - 1
		e = &StepError{Index: i, Step: r.image.program.Steps[i]}
	}
	e.Signal = s
	return e
}

// killWhenDone kills the child when ctx ends, until the returned function is called.
func (r *run) killWhenDone(ctx context.Context) func() {
	if ctx.Done() == nil {
		return func() {}
	}
	over, finished := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(finished)
		r.killUntil(over)
	})
	return func() {
		close(over)
		if !stop() {
			<-finished
		}
	}
}

// kill kills the child and the process that it forked. It reports whether there is a child. A
// process that has already ended is no error.
func (r *run) kill() bool {
	fd := atomic.LoadInt32(&r.control.pidFD)
	if fd < 0 {
		return false
	}
	_ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0)
	if pid := atomic.LoadInt32(&r.control.forked); pid > 0 {
		_ = unix.Kill(int(pid), unix.SIGKILL)
	}
	return true
}
