// Package console asks a person a question on a terminal that a confined command has
// written to.
//
// A terminal answers queries by sending input: if a command prints ESC [ > q, the
// terminal types its version. A terminal also keeps settings that a program made: hidden
// text, a scroll region, another screen, reports of the mouse. So a command could answer
// a question about itself, or hide it. A [Prompt] prevents that:
//
//   - It resets the terminal and moves to the bottom of the screen, so that nothing that
//     the command drew is below the question.
//   - It discards input until there has been none for a while, and escape sequences at
//     any time.
//   - An answer that allows something begins with a code. The code is random, new for
//     each line that is read, and shown with the question in the same colours. Input that
//     was sent earlier cannot contain it, and a person who does not see the question does
//     not see the code.
//
// In the meantime the caller must keep the command from using the terminal. Another
// program that writes to the same terminal can draw over the question, but does not know
// the code either.
package console

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A Terminal is a terminal that delivers keys one by one, without an echo.
type Terminal interface {
	io.Writer
	// Key waits for a byte of input.
	Key(ctx context.Context) (byte, error)
}

// restart resets a terminal so that it shows what is printed and sends what is typed. A
// terminal ignores sequences that it does not know.
const restart = "\x18\x1b\\" + // ends a sequence that was begun: CAN, and ST for strings
	"\x1b\x03\x1b<" + // leaves the Tektronix and VT52 modes of xterm
	"\x1b[4i\x1b[?4i" + // output goes to the screen, not to a printer
	"\x1b[0$}\x1b[0$~" + // to the main display, not to the status line
	"\x1b[?47;1047;1049l" + // to the main screen
	"\x1b[!p" + // soft reset
	"\x1b[2;4;20l\x1b[12h" + // keyboard not locked, no insert mode, Enter sends CR alone, no local echo
	"\x1b[?1;5;6;9;45;66;69l" + // plain cursor keys, colours not reversed, no origin mode, no X10 mouse, no margins
	"\x1b[?1000;1001;1002;1003;1004;1005;1006;1007;1015;1016l" + // no reports of mouse and focus
	"\x1b[?2004;2026;2031;2048;9001l" + // no marks around a paste, output shown at once, no reports of colours, size and keys
	"\x1b[?7;25h" + // lines wrap, and the cursor is visible
	"\x1b>\x1b[>4m\x1b[>0u" + // plain keys: keypad, modifyOtherKeys, and the protocol of kitty, which [leave] gives back
	"\x1b[0 k" + // characters go from left to right
	"\x0f\x1b(B\x1b)B\x1b*B\x1b+B" + // ASCII in every character set
	"\x1b[r\x1b[0m" + // the whole screen scrolls; no attributes, such as hidden
	"\x1b[9999;1H\r\n" // the last line

// utf8 switches a terminal to UTF-8.
const utf8 = "\x1b%G"

// leave restores the keyboard protocol that restart replaced.
const leave = "\x1b[<1u"

const (
	// quiet is how long there has to be no input before a question: longer than a terminal
	// takes to answer a query, even over some network hops. An answer that arrives later
	// does not have the code.
	quiet = 200 * time.Millisecond
	// noisy is the longest time for which input is discarded.
	noisy = 10 * time.Second
	// maxLine bounds a line.
	maxLine = 4096
	// maxLines bounds how often a prompt can be answered, and so how often the code can be
	// guessed.
	maxLines = 20
)

// ErrNoisy means that a terminal sends input all the time.
var ErrNoisy = errors.New("the terminal does not stop sending input")

// ErrTooMany means that a prompt got too many answers without a result.
var ErrTooMany = errors.New("too many answers that nobody asked for")

// ErrInterrupt means that Ctrl-C was pressed.
var ErrInterrupt = errors.New("interrupted")

// A Prompt is a terminal that is ready for a question.
type Prompt struct {
	t     Terminal
	lines int
}

// Start resets the terminal and waits until there is no input.
func Start(ctx context.Context, t Terminal) (*Prompt, error) {
	text := restart
	if utf8Locale() {
		text = utf8 + text
	}
	if _, err := io.WriteString(t, text); err != nil {
		return nil, err
	}
	for end := time.Now().Add(noisy); time.Now().Before(end); {
		wait, cancel := context.WithTimeout(ctx, quiet)
		_, err := t.Key(wait)
		over := wait.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
		case over: // no key for as long as it takes to be quiet
			return &Prompt{t: t}, nil
		default:
			return nil, err
		}
	}
	return nil, ErrNoisy
}

// utf8Locale reports whether the environment asks for UTF-8.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(os.Getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// Close ends the prompt.
func (p *Prompt) Close() { _, _ = io.WriteString(p.t, leave) }

// Write prints to the terminal.
func (p *Prompt) Write(b []byte) (int, error) { return p.t.Write(b) }

// An Answer is a line that was typed.
type Answer struct {
	// Text is the line without the code and without spaces at both ends.
	Text string
	// Coded says that the line began with the code. Only such an answer may allow
	// something.
	Coded bool
}

// Answer calls ask with a new code, prints the text that ask returns, and reads a line.
func (p *Prompt) Answer(ctx context.Context, ask func(code string) string) (Answer, error) {
	if p.lines++; p.lines > maxLines {
		return Answer{}, ErrTooMany
	}
	code := newCode()
	fmt.Fprint(p.t, ask(code))
	line, err := p.Line(ctx)
	if err != nil {
		return Answer{}, err
	}
	first, rest, _ := strings.Cut(line, " ")
	if first == code {
		return Answer{Text: strings.TrimSpace(rest), Coded: true}, nil
	}
	return Answer{Text: line}, nil
}

// newCode returns a random number with four digits.
func newCode() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return fmt.Sprint(1000 + binary.NativeEndian.Uint64(b[:])%9000)
}

// Line reads a line, with an echo, and drops escape sequences.
func (p *Prompt) Line(ctx context.Context) (string, error) {
	var line []byte
	var s sequence
	for len(line) < maxLine {
		key, err := p.t.Key(ctx)
		if err != nil {
			return "", err
		}
		const interrupt = 3
		if key == interrupt {
			fmt.Fprint(p.t, "^C\r\n")
			return "", ErrInterrupt
		}
		if s.takes(key) {
			continue
		}
		switch {
		case key == '\r' || key == '\n':
			fmt.Fprint(p.t, "\r\n")
			return strings.TrimSpace(string(line)), nil
		case key == 127 || key == 8:
			if len(line) > 0 {
				line = line[:len(line)-1]
				fmt.Fprint(p.t, "\b \b")
			}
		case key == 21: // Ctrl-U
			fmt.Fprint(p.t, strings.Repeat("\b \b", len(line)))
			line = nil
		case key >= ' ':
			line = append(line, key)
			_, _ = p.t.Write([]byte{key})
		}
	}
	return "", ErrTooMany
}

// A sequence recognizes the escape sequences that terminals send: reports, and keys
// that are not characters.
type sequence struct{ in byte }

// The states of a sequence.
const (
	outside = iota
	escape  // after ESC
	control // after CSI: until a final byte
	single  // after SS3: one byte
	text    // in a string, as after OSC and DCS: until ST or BEL
	textEnd // after ESC in a string
	middle  // after ESC and an intermediate byte
)

// takes reports whether the byte belongs to an escape sequence. Enter ends every
// sequence, so that a broken one does not swallow what the person types.
func (s *sequence) takes(b byte) bool {
	const esc, can, sub, bel = 0x1b, 0x18, 0x1a, 0x07
	switch {
	case b == '\r' || b == '\n':
		s.in = outside
		return false
	case b == can || b == sub:
		s.in = outside
		return true
	case b == esc && s.in == text:
		s.in = textEnd
		return true
	case b == esc:
		s.in = escape
		return true
	}
	switch s.in {
	case outside:
		return false
	case textEnd:
		s.in = text
		if b == '\\' {
			s.in = outside
		}
	case text:
		if b == bel {
			s.in = outside
		}
	case escape:
		s.in = afterEscape(b)
	case control:
		if b >= 0x40 && b <= 0x7e {
			s.in = outside
		}
	case middle:
		if b >= 0x30 && b <= 0x7e {
			s.in = outside
		}
	case single:
		s.in = outside
	}
	return true
}

// afterEscape returns the state after ESC and another byte.
func afterEscape(b byte) byte {
	switch {
	case b == '[':
		return control
	case b == 'O':
		return single
	case strings.IndexByte("]PX^_", b) >= 0:
		return text
	case b >= 0x20 && b <= 0x2f:
		return middle
	}
	return outside
}
