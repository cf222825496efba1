package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cloche-dev/cloche/internal/runoption"
	"golang.org/x/term"
)

// The colours of cloche's own words, as the escape sequences of terminals.
const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	bold   = "\x1b[1m"
	reset  = "\x1b[0m"
)

// words are what cloche itself says, one line each, apart from what the command
// prints.
type words struct {
	to     io.Writer
	colour bool
	// quiet keeps the lines back: they go into a report instead.
	quiet bool
	// raw: the terminal is in the raw mode that a command with a terminal of
	// its own needs, and does not return to the first column by itself.
	raw   bool
	mu    sync.Mutex // questions come up while the command runs
	lines []string
	told  map[string]bool // while the command ran
}

func newWords(to io.Writer) *words { return &words{to: to, colour: wantsColour(to)} }

// wantsColour follows the conventions: only on a terminal that can, and not
// where NO_COLOR is set to anything.
func wantsColour(to io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && isTerminal(to)
}

func (w *words) fail(err error) {
	for _, line := range errorLines(err) {
		w.say(red, line)
	}
}

func (w *words) warn(line string) { w.say(yellow, line) }

func (w *words) say(colour, line string) {
	line = printable(line)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
	if w.quiet {
		return
	}
	// Where standard error is gone there is nobody left to tell.
	_, _ = io.WriteString(w.to, w.prefix(colour)+line+w.newline())
}

func (w *words) prefix(colour string) string {
	if w.colour {
		return colour + bold + "cloche:" + reset + " "
	}
	return "cloche: "
}

// sayOnce says a line while the command runs, unless it was said. print prints it,
// and is false where that cannot be now; nil is standard error.
func (w *words) sayOnce(line string, print func(string) bool) {
	line = printable(line)
	switch {
	case w.told[line]:
		return
	case print == nil:
		w.warn(line)
	case !print(w.prefix(yellow) + line):
		return
	default:
		w.mu.Lock()
		w.lines = append(w.lines, line)
		w.mu.Unlock()
	}
	if w.told == nil {
		w.told = map[string]bool{}
	}
	w.told[line] = true
}

func (w *words) newline() string {
	if w.raw {
		return "\r\n"
	}
	return "\n"
}

// errorLines splits joined errors, one line each.
func errorLines(err error) []string {
	var lines []string
	for _, e := range flatten(err) {
		lines = append(lines, strings.TrimPrefix(e.Error(), "cloche: "))
	}
	return lines
}

// oneLine puts joined errors in one line.
func oneLine(err error) string { return strings.Join(errorLines(err), "; ") }

// flatten takes errors apart that errors.Join put together. Other errors with
// many causes have a text of their own and stay whole.
func flatten(err error) []error {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok || !isJoin(err, many.Unwrap()) {
		return []error{err}
	}
	var out []error
	for _, e := range many.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}

// isJoin knows errors.Join, whose type has no name, by its text.
func isJoin(err error, parts []error) bool {
	texts := make([]string, len(parts))
	for i, e := range parts {
		texts[i] = e.Error()
	}
	return err.Error() == strings.Join(texts, "\n")
}

// printable escapes what would act on a terminal or mislead a reader: control
// characters, which start escape sequences, marks that reorder text, and bytes
// that are not text. Names of files are chosen by strangers.
func printable(s string) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case hostile(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

func isPlain(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, hostile) < 0
}

// hostile is every control character and every invisible one that is not the
// space: the bidirectional marks among them, wide and narrow spaces, and letters that
// have no shape.
func hostile(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r != ' ' && unicode.Is(unicode.Zs, r) ||
		strings.ContainsRune("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0", r)
}

// commandLine shows a command the way a shell would read it.
func commandLine(argv []string) string {
	quoted := make([]string, len(argv))
	for i, word := range argv {
		quoted[i] = runoption.Word(word)
	}
	return strings.Join(quoted, " ")
}

// cut shortens a line of printable text to a width, in characters.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(0, width-1)]) + "…"
}

// print writes a result to standard output: v as JSON with --json, otherwise the text
// that write builds.
func (a *app) print(v any, write func(*strings.Builder)) error {
	var b strings.Builder
	if a.json {
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		b.WriteString(plainJSON(string(text)) + "\n")
	} else {
		write(&b)
	}
	return a.printText(b.String())
}

func (a *app) printText(text string) error {
	_, err := io.WriteString(a.out, text)
	return err
}

// printLines prints lines that may hold what acts on a terminal.
func (a *app) printLines(lines []string) error {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(printable(line) + "\n")
	}
	return a.printText(b.String())
}

// printTable writes a table to standard output, or v as JSON.
func (a *app) printTable(v any, t *table) error {
	return a.print(v, func(b *strings.Builder) { t.write(b, "") })
}

// printList writes each entry of a list on a line of its own: as JSON with --json,
// otherwise as the text that line returns. An empty list is the text none.
func printList[T any](a *app, list []T, none string, line func(*T) string) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	for i := range list {
		if !a.json {
			b.WriteString(printable(line(&list[i])) + "\n")
		} else if err := enc.Encode(&list[i]); err != nil {
			return err
		}
	}
	if len(list) == 0 && !a.json {
		b.WriteString(none + "\n")
	}
	text := b.String()
	if a.json {
		text = plainJSON(text)
	}
	return a.printText(text)
}

// plainJSON escapes what could act on a terminal, which in JSON is only in strings. What is below a blank is escaped there already.
func plainJSON(text string) string {
	if strings.IndexFunc(text, actsInJSON) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !actsInJSON(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func actsInJSON(r rune) bool { return r > ' ' && hostile(r) }

// deniedUnless ends cloche with the status for "no" unless the answer is yes.
func deniedUnless(yes bool, err error) error {
	if err == nil && !yes {
		return statusError(statusDenied)
	}
	return err
}

// progressAfter is how long work may take before a line says what it is.
const progressAfter = 400 * time.Millisecond

// progress says on a terminal what is being done, once that takes long. The
// returned function takes the line back, and has to be called before anything else
// is said.
func (w *words) progress(text string) (done func()) {
	if !isTerminal(w.to) || w.quiet || w.raw {
		return func() {}
	}
	return progressOn(w.to, text, progressAfter)
}

// isTerminal reports whether lines can be taken back there.
func isTerminal(to io.Writer) bool {
	f, ok := to.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

func progressOn(to io.Writer, text string, after time.Duration) (done func()) {
	var mu sync.Mutex
	var shown, ended bool
	timer := time.AfterFunc(after, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			shown = true
			_, _ = io.WriteString(to, "cloche: "+text+"…")
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		if shown && !ended {
			_, _ = io.WriteString(to, "\r\x1b[K")
		}
		ended = true
	}
}
