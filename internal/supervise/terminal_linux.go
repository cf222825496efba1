package supervise

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/console"
)

// backgroundPoll is how often a run in the background checks whether it is in the foreground
// again: a shell sends no signal to a job that was not stopped.
const backgroundPoll = 200 * time.Millisecond

// A terminal is the command's own terminal, connected with the caller's terminal. A nil
// terminal does nothing.
type terminal struct {
	master, slave *os.File
	input         io.Reader
	outer         *os.File // the caller's terminal, or nil

	drawn drawn // the modes that the command has set
	mu    sync.Mutex
	saved *unix.Termios // settings of outer from before it was made raw; nil if it is not raw
	held  bool          // outer must not be used
	wake  [2]*os.File   // a pipe that is closed at the end
	winch chan os.Signal
	fed   chan struct{} // closed when a terminal's input is no longer read
}

func newTerminal(spec *Spec) (*terminal, error) {
	t := &terminal{input: spec.Stdin, outer: outerTerminal(spec), fed: make(chan struct{})}
	var err error
	if t.master, t.slave, err = openPty(); err != nil {
		return nil, err
	}
	if t.wake[0], t.wake[1], err = os.Pipe(); err != nil {
		t.master.Close()
		t.slave.Close()
		return nil, err
	}
	t.inherit()
	return t, nil
}

// outerTerminal returns the caller's terminal: standard input, else standard output, else nil.
func outerTerminal(spec *Spec) *os.File {
	if isTerminal(spec.Stdin) {
		return spec.Stdin.(*os.File)
	}
	if isTerminal(spec.Stdout) {
		return spec.Stdout.(*os.File)
	}
	return nil
}

// openPty makes a pseudo-terminal.
func openPty() (master, slave *os.File, err error) {
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	s := -1
	if err = unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err == nil {
		s, err = ptyPeer(m)
	}
	if err != nil {
		unix.Close(m)
		return nil, nil, fmt.Errorf("make a terminal: %w", err)
	}
	return os.NewFile(uintptr(m), "/dev/ptmx"), os.NewFile(uintptr(s), "terminal"), nil
}

// inherit gives the new terminal the settings and size of the caller's.
func (t *terminal) inherit() {
	if t.outer == nil {
		return
	}
	if state, err := unix.IoctlGetTermios(int(t.outer.Fd()), unix.TCGETS); err == nil {
		_ = unix.IoctlSetTermios(int(t.slave.Fd()), unix.TCSETS, state)
	}
	t.resize()
}

func (t *terminal) resize() {
	if t.outer == nil {
		return
	}
	if size, err := unix.IoctlGetWinsize(int(t.outer.Fd()), unix.TIOCGWINSZ); err == nil {
		t.control(func(fd int) { _ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
	}
}

// control runs f on the master's descriptor. File.Fd would make the master blocking.
func (t *terminal) control(f func(fd int)) {
	if raw, err := t.master.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// start connects the two terminals.
func (t *terminal) start() {
	if t == nil {
		return
	}
	t.winch = make(chan os.Signal, 1)
	signal.Notify(t.winch, unix.SIGWINCH)
	go t.follow()
	t.attach()
	if in, ok := t.input.(*os.File); ok && in != nil && isTerminal(in) {
		go t.feedTerminal(in)
		return
	}
	close(t.fed)
	if t.input != nil {
		go t.feedReader()
	}
}

func (t *terminal) follow() {
	for range t.winch {
		t.resize()
	}
}

// attach makes the caller's terminal raw, so that keys reach the command's terminal before
// they have an effect. It does so only in the foreground: in the background the terminal
// belongs to another job, and changing it would stop this process.
func (t *terminal) attach() {
	if t == nil || t.outer == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved != nil || t.held || !t.foreground() {
		return
	}
	fd := int(t.outer.Fd())
	state, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return
	}
	raw := *state
	makeRaw(&raw)
	if unix.IoctlSetTermios(fd, unix.TCSETSW, &raw) == nil {
		t.saved = state
	}
	t.resize()
}

func makeRaw(s *unix.Termios) {
	s.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	s.Oflag &^= unix.OPOST
	s.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	s.Cflag = s.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	s.Cc[unix.VMIN], s.Cc[unix.VTIME] = 1, 0
}

// foreground reports whether this process may use the caller's terminal. A terminal that is
// not this process's controlling terminal has no foreground job, and may be used.
func (t *terminal) foreground() bool {
	group, err := unix.IoctlGetInt(int(t.outer.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// detach restores the caller's terminal and does not use it until resume.
func (t *terminal) detach() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved != nil && t.foreground() {
		_ = unix.IoctlSetTermios(int(t.outer.Fd()), unix.TCSETSW, t.saved)
	}
	t.saved, t.held = nil, true
}

// resume uses the caller's terminal again after detach.
func (t *terminal) resume() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.held = false
	t.mu.Unlock()
	t.attach()
}

// mine reports whether input from the caller's terminal is for the command.
func (t *terminal) mine() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.held && t.foreground()
}

// close disconnects the terminals. Input that nobody has read yet stays in the caller's
// terminal.
func (t *terminal) close() {
	if t == nil {
		return
	}
	t.detach()
	t.wake[1].Close()
	t.master.Close()
	if t.winch != nil {
		signal.Stop(t.winch)
		close(t.winch)
		<-t.fed
	}
	t.wake[0].Close()
	t.slave.Close()
}

// feedTerminal copies from the caller's terminal until the end of the run. It reads only when
// there is input, so that it never takes a key that is meant for the next program.
func (t *terminal) feedTerminal(in *os.File) {
	defer close(t.fed)
	buf := make([]byte, 4096)
	for t.awaitInput(in) {
		n, err := unix.Read(int(in.Fd()), buf)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if n <= 0 {
			t.endOfInput(true)
			return
		}
		if _, err := t.master.Write(buf[:n]); err != nil {
			return
		}
	}
}

// awaitInput waits for input in the foreground. It returns false at the end of the run.
func (t *terminal) awaitInput(in *os.File) bool {
	wake := int32(t.wake[0].Fd())
	for {
		fds := []unix.PollFd{{Fd: wake, Events: unix.POLLIN}, {Fd: int32(in.Fd()), Events: unix.POLLIN}}
		timeout := -1
		if !t.mine() {
			// Reading input in the background would stop the whole job.
			fds, timeout = fds[:1], int(backgroundPoll.Milliseconds())
		} else {
			t.attach()
		}
		_, err := unix.Poll(fds, timeout)
		switch {
		case err != nil && err != unix.EINTR, fds[0].Revents != 0:
			return false
		case len(fds) > 1 && fds[1].Revents != 0 && t.mine():
			return true
		}
	}
}

// feedReader copies from a reader that is no terminal.
func (t *terminal) feedReader() {
	last := &lastByte{w: t.master}
	_, _ = io.Copy(last, t.input)
	t.endOfInput(!last.any || last.b == '\n')
}

// endOfInput sends the end-of-file character: once at the start of a line, twice elsewhere,
// because the first one then only delivers the unfinished line.
func (t *terminal) endOfInput(lineStart bool) {
	const eot = 4
	if lineStart {
		_, _ = t.master.Write([]byte{eot})
	} else {
		_, _ = t.master.Write([]byte{eot, eot})
	}
}

// A lastByte remembers the last byte that was written through it.
type lastByte struct {
	w   io.Writer
	any bool
	b   byte
}

func (l *lastByte) Write(p []byte) (int, error) {
	if len(p) > 0 {
		l.any, l.b = true, p[len(p)-1]
	}
	return l.w.Write(p)
}

// ptyPeer opens the slave of a master: since Linux 4.13 through the master itself, before that
// by its name.
func ptyPeer(master int) (int, error) {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno == 0 {
		return int(fd), nil
	}
	n, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	return unix.Open(fmt.Sprintf("/dev/pts/%d", n), flags, 0)
}

// terminalName returns the path of a terminal. If it has none, as in a container whose
// /dev/pts is another instance, it returns that of the null device: the command's terminal
// then has no name inside either.
func terminalName(f *os.File) string {
	const none = "/dev/null"
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return none
	}
	var open, named unix.Stat_t
	if unix.Fstat(int(f.Fd()), &open) != nil || unix.Lstat(name, &named) != nil || open.Dev != named.Dev || open.Ino != named.Ino || open.Rdev != named.Rdev {
		return none
	}
	return name
}

// A Held is the caller's terminal while the command cannot use it: the command's output waits,
// and keys are not its input. Only one goroutine may use it.
type Held struct {
	*console.TTY
	release func()
}

// HoldTerminal keeps the command from the caller's terminal until Release. It returns false
// while another process group has the terminal, and if it is held already. A command without a
// terminal of its own can only be held if its denials are asked about and its standard input
// is not the terminal.
func (p *Process) HoldTerminal() (*Held, bool) {
	t := p.term
	if t == nil {
		return p.holdConsole()
	}
	if t.outer == nil {
		return nil, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved == nil || t.held || !t.foreground() || !p.gate.TryLock() {
		return nil, false
	}
	tty, err := console.Take(t.outer, t.saved, int(t.wake[0].Fd()))
	if err != nil {
		p.gate.Unlock()
		return nil, false
	}
	t.held = true
	return &Held{tty, func() { t.release(&p.gate) }}, true
}

// holdConsole holds the terminal of this process. The command cannot open that terminal, since
// it has a session of its own, and its output to it is copied.
func (p *Process) holdConsole() (*Held, bool) {
	if p.io.gate == nil || isTerminal(p.spec.Stdin) || !p.gate.TryLock() {
		return nil, false
	}
	tty := console.Open()
	if tty == nil {
		p.gate.Unlock()
		return nil, false
	}
	return &Held{tty, func() {
		tty.Release()
		p.gate.Unlock()
	}}, true
}

// PrintLine prints a line to the caller's terminal, between lines of the command. It prints
// nothing and returns false while another process group has the terminal, a question is on it,
// or a program of the command draws on it or reads single keys.
func (p *Process) PrintLine(text string) bool {
	t := p.term
	if t == nil || t.outer == nil || !p.gate.TryLock() {
		return false
	}
	defer p.gate.Unlock()
	t.mu.Lock()
	mine := t.saved != nil && !t.held && t.foreground()
	t.mu.Unlock()
	if !mine || t.drawn.alternate() || !t.readsLines() {
		return false
	}
	if t.drawn.midLine {
		text = "\r\n" + text
	}
	t.drawn.midLine = false
	_, err := io.WriteString(t.outer, text+"\r\n")
	return err == nil
}

// readsLines reports whether the command's terminal collects input into lines and adds
// carriage returns to output.
func (t *terminal) readsLines() (yes bool) {
	t.control(func(fd int) {
		state, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		yes = err == nil && state.Lflag&unix.ICANON != 0 && state.Oflag&unix.OPOST != 0
	})
	return yes
}

// Release gives the terminal back: output that waited appears, and the command gets a signal
// to redraw its screen.
func (h *Held) Release() { h.release() }

func (t *terminal) release(g *gate) {
	t.mu.Lock()
	again := t.saved != nil // nil if the terminal was detached meanwhile
	if again {
		raw := *t.saved
		makeRaw(&raw)
		_ = unix.IoctlSetTermios(int(t.outer.Fd()), unix.TCSETSW, &raw)
		t.held = false
	}
	t.mu.Unlock()
	if again {
		_, _ = io.WriteString(t.outer, t.drawn.modes())
	}
	g.Unlock()
	if again {
		t.redraw()
	}
}

// redraw makes a program that fills the screen draw it again. It sets another size and then
// the right one, because the kernel sends SIGWINCH only if the size changes.
func (t *terminal) redraw() {
	size, err := unix.IoctlGetWinsize(int(t.outer.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col < 2 {
		return
	}
	other := *size
	other.Col--
	t.control(func(fd int) {
		_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &other)
		_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size)
	})
}

// gated returns a writer that waits while the terminal is held.
func (t *terminal) gated(w io.Writer, g *gate) io.Writer {
	if w == nil || t.outer == nil {
		return w
	}
	return &gated{Writer: w, gate: g, drawn: &t.drawn}
}
