package supervise

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Held is the caller's terminal while the command is kept from it: what the
// command prints waits, and keys are not its input. It belongs to one goroutine.
type Held struct {
	t    *terminal
	gate *sync.Mutex
}

// HoldTerminal keeps the command from the caller's terminal, until Release. It is
// false where the command has no terminal of its own, where the terminal belongs
// to somebody else at the moment, and where it is held already.
func (p *Process) HoldTerminal() (*Held, bool) {
	t := p.term
	if t == nil || t.outer == nil {
		return nil, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved == nil || t.held || !t.foreground() || !t.gate.TryLock() {
		return nil, false
	}
	state := *t.saved
	// Keys come one by one and mean nothing by themselves: Ctrl-C is an answer.
	state.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG | unix.IEXTEN
	state.Cc[unix.VMIN], state.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(int(t.outer.Fd()), unix.TCSETSW, &state) != nil {
		t.gate.Unlock()
		return nil, false
	}
	t.held = true
	return &Held{t: t, gate: &t.gate}, true
}

// Write prints to the caller's terminal.
func (h *Held) Write(b []byte) (int, error) { return h.t.outer.Write(b) }

// keyPoll is how often Key looks whether it is still wanted.
const keyPoll = 50 * time.Millisecond

// Key waits for a key.
func (h *Held) Key(ctx context.Context) (byte, error) {
	fds := []unix.PollFd{{Fd: int32(h.t.wake[0].Fd()), Events: unix.POLLIN}, {Fd: int32(h.t.outer.Fd()), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		_, err := unix.Poll(fds, int(keyPoll.Milliseconds()))
		if err != nil && err != unix.EINTR || fds[0].Revents != 0 {
			return 0, io.EOF // the run is over
		}
		if err != nil || fds[1].Revents == 0 {
			continue
		}
		var b [1]byte
		n, err := unix.Read(int(h.t.outer.Fd()), b[:])
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		default:
			return b[0], nil
		}
	}
	return 0, ctx.Err()
}

// Release gives the terminal back: what was printed meanwhile appears, and the
// command is told to draw itself anew.
func (h *Held) Release() {
	t := h.t
	t.mu.Lock()
	again := t.saved != nil // or it was let go of meanwhile
	if again {
		raw := *t.saved
		makeRaw(&raw)
		_ = unix.IoctlSetTermios(int(t.outer.Fd()), unix.TCSETSW, &raw)
		t.held = false
	}
	t.mu.Unlock()
	h.gate.Unlock()
	if again {
		t.redraw()
	}
}

// redraw makes a program that fills the screen draw it again: it is told of a size
// that changed, twice, because the kernel says nothing of one that did not.
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

// A gated writer waits while the terminal is held.
type gated struct {
	io.Writer
	gate *sync.Mutex
}

func (g *gated) Write(b []byte) (int, error) {
	g.gate.Lock()
	defer g.gate.Unlock()
	return g.Writer.Write(b)
}

func (t *terminal) gated(w io.Writer) io.Writer {
	if w == nil || t.outer == nil {
		return w
	}
	return &gated{w, &t.gate}
}
