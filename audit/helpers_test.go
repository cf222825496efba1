package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// childVar makes the test binary act as a writer instead (see runChild).
const childVar = "CLOCHE_AUDIT_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childVar); mode != "" {
		os.Exit(runChild(mode, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// runChild writes events: child MODE with arguments PATH COUNT.
func runChild(mode string, args []string) int {
	if mode == "full" {
		if err := runFull(args[0]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
		return 0
	}
	d := NewDir(args[0])
	if mode == "limited" {
		limitFileSize()
	}
	count, _ := strconv.Atoi(args[1])
	for i := range count {
		if err := d.Record(Event{Kind: Start, Run: fmt.Sprint(os.Getpid(), "-", i), PID: os.Getpid()}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
	}
	return 0
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clock is a time that tests move.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func day(n int) time.Time {
	return time.Date(2031, time.March, n, 12, 0, 0, 123456789, time.FixedZone("east", 3*3600))
}

// newTestDir returns a log in a folder that does not exist yet.
func newTestDir(t testing.TB) (*Dir, *clock, string) {
	t.Helper()
	c := &clock{at: day(1)}
	path := filepath.Join(t.TempDir(), "state", "audit")
	d := NewDir(path)
	d.now = c.now
	t.Cleanup(func() { d.Close() })
	return d, c, path
}

// record writes n events.
func record(t testing.TB, d *Dir, n int) {
	t.Helper()
	for i := range n {
		must(t, d.Record(Event{Kind: Start, Run: fmt.Sprint(i), Argv: []string{"make", "test"}}))
	}
}

// filled returns a log with 4 lines on each of 3 days.
func filled(t testing.TB) (d *Dir, path string, files []string) {
	t.Helper()
	d, c, path := newTestDir(t)
	for n := 1; n <= 3; n++ {
		c.at = day(n)
		record(t, d, 4)
		files = append(files, dayName(c.at))
	}
	return d, path, files
}

// lines reads a file as lines without newlines.
func lines(t testing.TB, path, file string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path, file))
	must(t, err)
	return bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
}

func setLines(t testing.TB, path, file string, lines [][]byte) {
	t.Helper()
	data := append(bytes.Join(lines, []byte("\n")), '\n')
	must(t, os.WriteFile(filepath.Join(path, file), data, 0o600))
}

func verify(t testing.TB, path string) Report {
	t.Helper()
	r, err := Verify(path)
	must(t, err)
	return r
}

// expectFindings compares kinds, files and lines.
func expectFindings(t *testing.T, r Report, want ...string) {
	t.Helper()
	var got []string
	for _, f := range r.Findings {
		got = append(got, fmt.Sprintf("%s %s:%d", f.Kind, f.File, f.Line))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("findings:\n got %q\nwant %q\n(%v)", got, want, r.Findings)
	}
}
