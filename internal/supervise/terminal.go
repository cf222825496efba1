package supervise

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// A TTYMode says when the command gets a terminal of its own.
type TTYMode int

// The modes.
const (
	TTYNever  TTYMode = iota // never
	TTYAuto                  // if standard input and output are terminals
	TTYAlways                // always
)

var ttyModeNames = [...]string{"never", "auto", "always"}

// String returns the mode's name.
func (m TTYMode) String() string {
	if m < 0 || int(m) >= len(ttyModeNames) {
		return "invalid"
	}
	return ttyModeNames[m]
}

// MarshalText writes the mode's name.
func (m TTYMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a mode's name.
func (m *TTYMode) UnmarshalText(b []byte) error {
	for i, n := range ttyModeNames {
		if n == string(b) {
			*m = TTYMode(i)
			return nil
		}
	}
	return fmt.Errorf("unknown terminal mode %q: it is one of never, auto, always", b)
}

// Wants reports whether the command gets a terminal of its own. The result is for
// Spec.Terminal and plan.Command.Terminal, and has to be known before the plan is compiled.
//
// With the caller's own terminal, a command could push input into it (TIOCSTI) or change its
// settings permanently. With its own terminal, it has standard input and output there, and
// standard error unless that is redirected.
func Wants(mode TTYMode, stdin io.Reader, stdout io.Writer) bool {
	switch mode {
	case TTYAlways:
		return true
	case TTYAuto:
		return isTerminal(stdin) && isTerminal(stdout)
	case TTYNever:
	}
	return false
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && f != nil && term.IsTerminal(int(f.Fd()))
}
