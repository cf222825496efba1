package supervise

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A drawn tracks the terminal modes that a command sets, from its output. They are set again
// after a question, and no line is printed into a program that fills the screen. It
// understands the sequences of well-behaved programs. Nothing that protects the host depends
// on it. A nil drawn tracks nothing.
type drawn struct {
	state  byte // of the parser: 0, ESC, or [
	params []byte
	// set are the private modes that the command turned on or off.
	set    map[int]bool
	keypad bool   // application keypad
	keys   string // modifyOtherKeys, as the command set it
	// midLine: the last output did not end a line.
	midLine bool
}

// maxParams limits the length of a sequence's parameters.
const maxParams = 64

// kept are the private modes that are set again after a question. The others may stay reset: a
// program that redraws the screen sets them anyway.
var kept = []int{1, 5, 7, 9, 25, 66, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 1047, 47, 1049, 2004, 2031, 2048, 9001}

// usuallyOn reports whether a mode is on unless a program turns it off.
func usuallyOn(mode int) bool { return mode == 7 || mode == 25 }

// follow parses output.
func (s *drawn) follow(b []byte) {
	if s == nil || len(b) == 0 {
		return
	}
	s.midLine = b[len(b)-1] != '\n'
	const esc = 0x1b
	for len(b) > 0 {
		if s.state == 0 {
			i := bytes.IndexByte(b, esc)
			if i < 0 {
				return
			}
			s.state, b = esc, b[i+1:]
			continue
		}
		c := b[0]
		b = b[1:]
		switch {
		case c == esc:
			s.state = esc
		case s.state == esc:
			s.escape(c)
		case c >= 0x40 && c <= 0x7e:
			s.control(c)
			s.state = 0
		case len(s.params) < maxParams:
			s.params = append(s.params, c)
		default:
			s.state = 0
		}
	}
}

// escape handles the byte after ESC.
func (s *drawn) escape(c byte) {
	s.state = 0
	switch c {
	case '[':
		s.state, s.params = '[', s.params[:0]
	case '=', '>':
		s.keypad = c == '='
	case 'c': // full reset
		*s = drawn{}
	}
}

// control handles a complete control sequence.
func (s *drawn) control(final byte) {
	text := string(s.params)
	modes, private := strings.CutPrefix(text, "?")
	switch {
	case private && (final == 'h' || final == 'l'):
		for _, m := range strings.Split(modes, ";") {
			n, err := strconv.Atoi(m)
			if err != nil || !slices.Contains(kept, n) {
				continue
			}
			if s.set == nil {
				s.set = map[int]bool{}
			}
			s.set[n] = final == 'h'
		}
	case final == 'm' && strings.HasPrefix(text, ">4"):
		s.keys = "\x1b[" + text + "m"
	}
}

// alternate reports whether a program fills the screen.
func (s *drawn) alternate() bool { return s.set[47] || s.set[1047] || s.set[1049] }

// modes returns the sequences that set the command's modes again.
func (s *drawn) modes() string {
	var b strings.Builder
	for _, n := range kept {
		if on, ok := s.set[n]; ok && on != usuallyOn(n) {
			final := 'l'
			if on {
				final = 'h'
			}
			fmt.Fprintf(&b, "\x1b[?%d%c", n, final)
		}
	}
	if s.keypad {
		b.WriteString("\x1b=")
	}
	return b.String() + s.keys
}
