package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"sync"
	"syscall"
	"time"
)

const (
	// drainIdle is how long a pipe that someone else holds open is listened to
	// after the end of the run, drainMost how much is taken from it: more than
	// a pipe can hold, so that nothing that the command wrote is lost.
	drainIdle = 200 * time.Millisecond
	drainMost = 2 << 20
	// writeGrace is how long a writer of the caller may block after the run was
	// ended by the supervisor.
	writeGrace = 5 * time.Second
)

// A stdio is the standard streams of one run.
type stdio struct {
	// child are the three descriptors that the launched program gets; nil is the null
	// device, where the program has that: see nullAwaits.
	child [3]*os.File
	// ends are those of them that are ours to close once it has them.
	ends    []*os.File
	copiers []*copier
	feed    func() // copies standard input; nil if there is nothing to copy
	feedEnd *os.File
	budget  *budget
	// nullAwaits: the command is given to a process that waits for it, and that has
	// the null device open for each stream that does not come along.
	nullAwaits bool
}

// newStdio connects the streams; over is called when the output is too much.
func newStdio(spec *Spec, term *terminal, over func()) (s *stdio, err error) {
	s = &stdio{budget: newBudget(spec.Output, over), nullAwaits: spec.Parked != nil && spec.Launch.Awaits}
	defer func() {
		if err != nil {
			s.closeChildEnds()
			s.abort()
		}
	}()
	if term != nil {
		s.child[0], s.child[1] = term.slave, term.slave
		s.ends = append(s.ends, term.slave)
		s.copy(term.master, term.gated(spec.Stdout))
	} else if err = s.input(spec.Stdin); err != nil {
		return s, err
	} else if s.child[1], err = s.output(spec.Stdout); err != nil {
		return s, err
	}
	bothDiscarded := term == nil && spec.Stdout == nil && spec.Stderr == nil
	if bothDiscarded || same(spec.Stdout, spec.Stderr) || (term != nil && isTerminal(spec.Stderr)) {
		s.child[2] = s.child[1]
		return s, nil
	}
	s.child[2], err = s.output(spec.Stderr)
	return s, err
}

// same reports whether two writers are one, so that they can share a pipe.
func same(a, b io.Writer) bool {
	return a != nil && b != nil && reflect.TypeOf(a).Comparable() && reflect.TypeOf(b).Comparable() && a == b
}

// passable reports whether the command may be given the file itself. A file of
// the host could be opened again through /proc/self/fd with more rights than it
// was given with, past every mount: read becomes write, appending becomes
// truncating. So its bytes are copied through a pipe. A folder would be a door
// out of the sandbox.
func passable(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return false, fmt.Errorf("%s is a folder, which would show the command what lies in it; redirect a file or a pipe", f.Name())
	case mode.IsRegular(), mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0:
		return false, nil
	}
	return true, nil
}

func (s *stdio) null(flag int) (*os.File, error) {
	if s.nullAwaits {
		return nil, nil
	}
	f, err := openNull(flag)
	if err == nil {
		s.ends = append(s.ends, f)
	}
	return f, err
}

func (s *stdio) input(r io.Reader) (err error) {
	if f, ok := r.(*os.File); ok && f != nil {
		pass, err := passable(f)
		if err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
		if pass {
			s.child[0] = f
			return nil
		}
	}
	if r == nil || r == (*os.File)(nil) {
		s.child[0], err = s.null(os.O_RDONLY)
		return err
	}
	read, write, err := pipeToChild()
	if err != nil {
		return err
	}
	s.child[0], s.feedEnd = read, write
	s.ends = append(s.ends, read)
	s.feed = func() {
		_, _ = io.Copy(write, r)
		write.Close()
	}
	return nil
}

func (s *stdio) output(w io.Writer) (*os.File, error) {
	f, isFile := w.(*os.File)
	if w == nil || (isFile && f == nil) {
		return s.null(os.O_WRONLY)
	}
	if isFile {
		pass, err := passable(f)
		if err != nil {
			return nil, fmt.Errorf("standard output: %w", err)
		}
		if pass && s.budget == nil {
			return f, nil
		}
	}
	read, write, err := pipeFromChild()
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, write)
	s.copy(read, w)
	return write, nil
}

func (s *stdio) copy(from *os.File, to io.Writer) {
	if to == nil {
		to = io.Discard
	}
	s.copiers = append(s.copiers, &copier{from: from, to: to, budget: s.budget, done: make(chan struct{})})
}

func (s *stdio) start() {
	for _, c := range s.copiers {
		go c.run()
	}
	if s.feed != nil {
		go s.feed()
	}
}

func (s *stdio) closeChildEnds() { closeAll(s.ends) }

// abort closes what start would have used.
func (s *stdio) abort() {
	for _, c := range s.copiers {
		c.from.Close()
	}
	if s.feedEnd != nil {
		s.feedEnd.Close()
	}
}

// drain delivers what the tree wrote before it ended and stops copying. The
// reader of standard input is not waited for: it may block for ever.
func (s *stdio) drain(ended bool) error {
	if s.feedEnd != nil {
		s.feedEnd.Close()
	}
	var patience <-chan time.Time
	if ended {
		t := time.NewTimer(writeGrace)
		defer t.Stop()
		patience = t.C
	}
	var first error
	for _, c := range s.copiers {
		c.hurry()
		select {
		case <-c.done:
			first = errors.Join(first, c.err)
		case <-patience:
			return errors.New("the run was ended, but its output could not be written: the writer blocks")
		}
	}
	return first
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// A copier copies one stream of output to a writer of the caller.
type copier struct {
	from   *os.File
	to     io.Writer
	budget *budget
	done   chan struct{}
	err    error // valid when done is closed
}

// hurry makes run stop at the end of what there is.
func (c *copier) hurry() {
	if c.from.SetReadDeadline(time.Unix(1, 0)) == nil {
		return
	}
	// Pipes that know no deadlines.
	select {
	case <-c.done:
	case <-time.After(drainIdle):
		c.from.Close()
	}
}

func (c *copier) run() {
	defer close(c.done)
	// A reader that is gone is what the command should notice, as it would
	// without a copy in between.
	defer c.from.Close()
	buf := make([]byte, 32<<10)
	drained, draining := 0, false
	for drained < drainMost {
		if draining {
			_ = c.from.SetReadDeadline(time.Now().Add(drainIdle))
		}
		n, err := c.from.Read(buf)
		if draining {
			drained += n
		}
		if !c.deliver(buf[:n]) {
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !draining {
			draining = true
		} else if err != nil {
			return
		}
	}
}

// deliver writes what the budget allows and reports whether to go on.
func (c *copier) deliver(b []byte) bool {
	allowed, over := c.budget.take(len(b))
	if allowed > 0 {
		if _, err := c.to.Write(b[:allowed]); err != nil {
			if !errors.Is(err, syscall.EPIPE) {
				c.err = err
			}
			return false
		}
	}
	return !over
}

// A budget is the output that is still allowed; nil is no limit.
type budget struct {
	mu   sync.Mutex
	left int64
	over func()
}

func newBudget(limit int64, over func()) *budget {
	if limit < 0 {
		return nil
	}
	return &budget{left: limit, over: over}
}

// take returns how many of n bytes are allowed, and whether that is too few.
func (b *budget) take(n int) (allowed int, over bool) {
	if b == nil {
		return n, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if int64(n) <= b.left {
		b.left -= int64(n)
		return n, false
	}
	allowed = int(b.left)
	b.left = 0
	b.over()
	return allowed, true
}
