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
	// drainIdle is how long the supervisor still reads from a pipe that another process keeps
	// open after the end of the run. drainMost is how much it reads: more than a pipe can
	// hold, so that nothing that the command wrote is lost.
	drainIdle = 200 * time.Millisecond
	drainMost = 2 << 20
	// writeGrace is how long a writer of the caller may block after the supervisor has ended
	// the run.
	writeGrace = 5 * time.Second
)

// A stdio is the standard streams of one run.
type stdio struct {
	// child are the three descriptors that the launched program gets. nil is the null device,
	// which the program then has already: see nullAwaits.
	child [3]*os.File
	// ends are those of them that this process closes once the program has them.
	ends    []*os.File
	copiers []*copier
	feed    func() // copies standard input; nil if there is nothing to copy
	feedEnd *os.File
	unread  *unread // resets the offset of a file that is the standard input; or nil
	relay   *relay  // carries a pipe of the caller to the command; or nil
	budget  *budget
	// gate, unless nil, is for output to a terminal, which is then copied: while a person is
	// asked, the command must not draw over the question.
	gate *gate
	// nullAwaits: the command is sent to a waiting init, which has the null device open for
	// each stream that it does not receive.
	nullAwaits bool
}

// newStdio connects the streams. over is called when the output exceeds its limit.
func newStdio(spec *Spec, term *terminal, g *gate, over func()) (s *stdio, err error) {
	s = &stdio{budget: newBudget(spec.Output, over), nullAwaits: spec.Parked != nil && spec.Launch.Awaits}
	if spec.Ask != nil {
		s.gate = g
	}
	defer func() {
		if err != nil {
			s.closeChildEnds()
			s.abort()
		}
	}()
	if term != nil {
		s.child[0], s.child[1] = term.slave, term.slave
		s.ends = append(s.ends, term.slave)
		s.copy(term.master, term.gated(spec.Stdout, g))
	} else if err = s.input(spec.Stdin); err != nil {
		return s, err
	} else if s.child[1], err = s.output(spec.Stdout); err != nil {
		return s, err
	}
	bothDiscarded := term == nil && spec.Stdout == nil && spec.Stderr == nil
	if bothDiscarded || same(spec.Stdout, spec.Stderr) || (term == nil && samePipe(spec.Stdout, spec.Stderr)) || (term != nil && isTerminal(spec.Stderr)) || s.gates(spec.Stdout) && s.gates(spec.Stderr) {
		s.child[2] = s.child[1]
		return s, nil
	}
	s.child[2], err = s.output(spec.Stderr)
	return s, err
}

// same reports whether two writers are the same, so that they can share a pipe.
func same(a, b io.Writer) bool {
	return a != nil && b != nil && reflect.TypeOf(a).Comparable() && reflect.TypeOf(b).Comparable() && a == b
}

// samePipe reports whether two writers write to the same pipe, as after 2>&1. The output then
// has an order, which would be lost if each were copied separately.
func samePipe(a, b io.Writer) bool {
	one, ok := pipeInfo(a)
	other, ok2 := pipeInfo(b)
	return ok && ok2 && os.SameFile(one, other)
}

func pipeInfo(w io.Writer) (os.FileInfo, bool) {
	f, ok := w.(*os.File)
	if !ok || f == nil {
		return nil, false
	}
	info, err := f.Stat()
	return info, err == nil && reopens(info.Mode())
}

// A passing is how a file of the caller becomes a standard stream.
type passing int

const (
	handedOver passing = iota // the command gets the file itself
	copied                    // its bytes are copied through a pipe
	relayed                   // it is a pipe, and a relay carries its bytes
)

// passable returns how the command may get the file. Through /proc/self/fd, the command could
// reopen a host file with more access than it was given, regardless of mounts: reading becomes
// writing, appending becomes truncating, and one end of a pipe gives the other end. So the
// bytes are copied instead. A folder is an error, because the command could reach everything
// in it.
func passable(f *os.File) (passing, error) {
	info, err := f.Stat()
	if err != nil {
		return copied, err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return copied, fmt.Errorf("%s is a folder, which would show the command what lies in it; redirect a file or a pipe", f.Name())
	case reopens(mode):
		return relayed, nil
	case mode.IsRegular(), mode&os.ModeDevice != 0 && (mode&os.ModeCharDevice == 0 || !harmlessDevice(f, info)):
		return copied, nil
	}
	return handedOver, nil
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
	f, isFile := r.(*os.File)
	if r == nil || (isFile && f == nil) {
		s.child[0], err = s.null(os.O_RDONLY)
		return err
	}
	if isFile {
		if done, err := s.inputFile(f); done || err != nil {
			return err
		}
	}
	read, write, err := pipeToChild()
	if err != nil {
		return err
	}
	s.child[0], s.feedEnd = read, write
	s.ends = append(s.ends, read)
	if isFile {
		s.unread = newUnread(f, read)
	}
	s.feed = func() {
		n, _ := io.Copy(write, r)
		write.Close()
		if s.unread != nil {
			s.unread.copied <- n
		}
	}
	return nil
}

// inputFile connects standard input, if the file's bytes need no copying. It reports whether
// it did.
func (s *stdio) inputFile(f *os.File) (done bool, err error) {
	how, err := passable(f)
	if err != nil {
		return false, fmt.Errorf("standard input: %w", err)
	}
	switch how {
	case handedOver:
		s.child[0] = f
		return true, nil
	case relayed:
		s.relay, s.child[0], err = newRelay(f)
		if err != nil {
			return false, fmt.Errorf("standard input: %w", err)
		}
		s.ends = append(s.ends, s.child[0])
		return true, nil
	case copied:
	}
	return false, nil
}

func (s *stdio) output(w io.Writer) (*os.File, error) {
	f, isFile := w.(*os.File)
	if w == nil || (isFile && f == nil) {
		return s.null(os.O_WRONLY)
	}
	var own *os.File
	if isFile {
		how, err := passable(f)
		if err == nil && how == relayed {
			own, err = duplicate(f)
			w = own
		}
		if err != nil {
			return nil, fmt.Errorf("standard output: %w", err)
		}
		if s.gates(f) {
			w = &gated{Writer: f, gate: s.gate}
		} else if how == handedOver && s.budget == nil {
			return f, nil
		}
	}
	read, write, err := pipeFromChild()
	if err != nil {
		if own != nil {
			own.Close()
		}
		return nil, err
	}
	s.ends = append(s.ends, write)
	s.copy(read, w)
	s.copiers[len(s.copiers)-1].own = own
	return write, nil
}

// gates reports whether output goes to a terminal to which the command must not have direct
// access.
func (s *stdio) gates(w io.Writer) bool { return s.gate != nil && isTerminal(w) }

// A gate is locked while a question is on the terminal.
type gate struct{ sync.Mutex }

// A gated writer waits while its gate is locked.
type gated struct {
	io.Writer
	gate  *gate
	drawn *drawn // tracks the modes that the output sets; or nil
}

func (g *gated) Write(b []byte) (int, error) {
	g.gate.Lock()
	defer g.gate.Unlock()
	g.drawn.follow(b)
	return g.Writer.Write(b)
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
	if s.relay != nil {
		go s.relay.run()
	}
}

func (s *stdio) closeChildEnds() { closeAll(s.ends) }

// abort closes everything, if start was not called.
func (s *stdio) abort() {
	for _, c := range s.copiers {
		c.close()
	}
	if s.feedEnd != nil {
		s.feedEnd.Close()
	}
	if s.unread != nil {
		s.unread.close()
	}
	if s.relay != nil {
		s.relay.close()
	}
}

// drain delivers what the tree wrote before it ended, and stops copying. It does not wait for
// the reader of standard input, which may block forever.
func (s *stdio) drain(ended bool) error {
	if s.feedEnd != nil {
		s.feedEnd.Close()
	}
	if s.unread != nil {
		s.unread.giveBack()
	}
	if s.relay != nil {
		s.relay.end()
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
	own    *os.File // to, if it has to be closed here
	budget *budget
	done   chan struct{}
	err    error // valid when done is closed
}

// hurry makes run stop when it has read everything that is there.
func (c *copier) hurry() {
	if c.from.SetReadDeadline(time.Unix(1, 0)) == nil {
		return
	}
	// For pipes without deadlines.
	select {
	case <-c.done:
	case <-time.After(drainIdle):
		c.from.Close()
	}
}

func (c *copier) close() {
	c.from.Close()
	if c.own != nil {
		c.own.Close()
	}
}

func (c *copier) run() {
	defer close(c.done)
	// If the reader has closed its end, the command should notice it, as it would without a
	// copy.
	defer c.close()
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

// deliver writes what the budget allows and reports whether to continue.
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

// A budget is the amount of output that is still allowed. nil means no limit.
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

// take returns how many of n bytes are allowed, and whether the limit is exceeded.
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
