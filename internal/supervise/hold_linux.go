package supervise

import (
	"io"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/console"
)

// A Held is the caller's terminal while the command is kept from it: what the
// command prints waits, and keys are not its input. It belongs to one goroutine.
type Held struct {
	*console.TTY
	release func()
}

// HoldTerminal keeps the command from the caller's terminal, until Release. It is
// false where the terminal belongs to somebody else at the moment, and where it is
// held already. A command that has no terminal of its own has to be one whose
// refusals are asked about, and its input must not be the terminal.
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

// holdConsole holds the terminal of this process. The command cannot open it, since
// it has a session of its own, and what it prints there is copied.
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

// PrintLine prints a line to the caller's terminal, between those of the command. It
// prints nothing, and is false, while the terminal is not ours, somebody is asked
// there, or a program of the command draws on it or reads it key by key.
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

// readsLines reports whether the command's terminal is in the mode in which it
// collects lines, and adds carriage returns to what is printed.
func (t *terminal) readsLines() (yes bool) {
	t.control(func(fd int) {
		state, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		yes = err == nil && state.Lflag&unix.ICANON != 0 && state.Oflag&unix.OPOST != 0
	})
	return yes
}

// Release gives the terminal back: what was printed meanwhile appears, and the
// command is told to draw itself anew.
func (h *Held) Release() { h.release() }

func (t *terminal) release(g *gate) {
	t.mu.Lock()
	again := t.saved != nil // or it was let go of meanwhile
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

// gated is a writer that waits while the terminal is held.
func (t *terminal) gated(w io.Writer, g *gate) io.Writer {
	if w == nil || t.outer == nil {
		return w
	}
	return &gated{Writer: w, gate: g, drawn: &t.drawn}
}
