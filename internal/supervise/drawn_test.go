package supervise

import (
	"strings"
	"testing"
)

// N2: what a program had set is set again after a question, also if it came in
// pieces; what it has reset is not.
func TestDrawnModes(t *testing.T) {
	text := "plain\x1b[31mred\x1b[?1049h\x1b[?25l\x1b[?1000;1006h\x1b=\x1b[>4;2m\x1b[?2004h\x1b]0;title [?1003h\x07\x1b[?2004l\x1b[?7h"
	for size := 1; size < len(text); size++ {
		var s drawn
		for at := 0; at < len(text); at += size {
			s.follow([]byte(text[at:min(at+size, len(text))]))
		}
		if got := s.modes(); got != "\x1b[?25l\x1b[?1000h\x1b[?1006h\x1b[?1049h\x1b=\x1b[>4;2m" || !s.alternate() {
			t.Fatalf("in pieces of %d: %q", size, got)
		}
	}
	var s drawn
	s.follow([]byte("\x1b[?1049h\x1b[?1049l\x1b[?" + strings.Repeat("1;", 1000) + "h"))
	if s.modes() != "" || s.alternate() {
		t.Errorf("%q", s.modes())
	}
}
