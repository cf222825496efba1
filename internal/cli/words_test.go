package cli

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain /path é 日本":  "plain /path é 日本",
		"a\x1b[2Jb":         `a\x1b[2Jb`,
		"two\nlines\r":      `two\nlines\r`,
		"c1 \u009b31m":      `c1 \u009b31m`,
		"bidi \u202eevil":   `bidi \u202eevil`,
		"zero\u200bwidth":   `zero\u200bwidth`,
		"not utf8 \xff\xfe": `not utf8 \xff\xfe`,
		"line\u2028sep":     `line\u2028sep`,
		"":                  "",
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzPrintable: whatever comes in, nothing that acts on a terminal comes out,
// and it is one line.
func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b]0;title\x07b")
	f.Add("\xc2\x9b")
	f.Fuzz(func(t *testing.T, s string) {
		if got := printable(s); !isPlain(got) {
			t.Errorf("printable(%q) = %q", s, got)
		}
	})
}

func TestFailSaysOneLinePerError(t *testing.T) {
	var b bytes.Buffer
	w := newWords(&b)
	whole := fmt.Errorf("two causes: %w and %w", errors.New("x"), errors.New("y"))
	w.fail(errors.Join(errors.New("first\nline"), errors.Join(errors.New("cloche: second"), whole)))
	want := "cloche: first\\nline\ncloche: second\ncloche: two causes: x and y\n"
	if b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
}

func TestShellWord(t *testing.T) {
	got := commandLine([]string{"sh", "-c", "it's a $x", "", "a=b"})
	if want := `sh -c 'it'\''s a $x' '' a=b`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{{"short", 10, "short"}, {"exactly", 7, "exactly"}, {"too long", 5, "too …"}, {"éééé", 3, "éé…"}, {"x", -3, "…"}} {
		if got := cut(c.in, c.width); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.in, c.width, got, c.want)
		}
	}
}

func TestStatus(t *testing.T) {
	notFound := &cloche.CommandError{Name: "x", NotFound: true}
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"success":              {nil, 0},
		"own status":           {statusError(7), 7},
		"the command's":        {&cloche.ExitError{Result: &cloche.Result{ExitCode: 3}}, 3},
		"a signal":             {&cloche.ExitError{Result: &cloche.Result{ExitCode: 137, Signal: "killed"}}, 137},
		"out of time":          {&cloche.ExitError{Result: &cloche.Result{ExitCode: 137, TimedOut: true}}, 124},
		"out of another limit": {&cloche.ExitError{Result: &cloche.Result{ExitCode: 137, Exceeded: "memory"}}, 125},
		"not found":            {errors.Join(notFound), 127},
		"not executable":       {&cloche.CommandError{Name: "x"}, 126},
		"not executable twice": {errors.Join(&cloche.CommandError{Name: "x"}, &cloche.CommandError{Name: "x"}), 126},
		"policy and not found": {errors.Join(&cloche.PolicyError{Rule: "r"}, notFound), 125},
		"anything else":        {errors.New("x"), 125},
	} {
		if got := statusOf(c.err); got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"run", "policy", "explain", "check"}
	for in, want := range map[string]string{"rum": "run", "polcy": "policy", "expl": "explain", "zzzzz": "", "chekc": "check", "rnu": "run"} {
		if got := nearest(in, names); got != want {
			t.Errorf("nearest(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTableStaysAligned(t *testing.T) {
	var b strings.Builder
	tab := &table{}
	tab.add("a", "1", "x")
	tab.add("éé", "22", "y")
	tab.add(strings.Repeat("w", 60), "3")
	tab.write(&b, "")
	lines := strings.Split(b.String(), "\n")
	if at := slices.Index([]rune(lines[0]), '1'); at != slices.Index([]rune(lines[1]), '2') || at != maxColumn+2 {
		t.Errorf("columns are not aligned:\n%s", b.String())
	}
	if !strings.HasSuffix(lines[2], "w  3") {
		t.Errorf("a wide cell is not followed by its row: %q", lines[2])
	}
}
