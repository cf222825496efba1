package audit

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/redact"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// W8: nothing is made before there is something to write.
func TestDirIsLazy(t *testing.T) {
	d, _, path := newTestDir(t)
	must(t, d.Close())
	if _, err := os.Lstat(filepath.Dir(path)); err == nil {
		t.Error("a folder was made before the first event")
	}
	record(t, d, 1)
	if names, err := os.ReadDir(path); err != nil || len(names) != 2 {
		t.Errorf("got %v, %v", names, err)
	}
}

// W8, W4: the JSON names are a contract.
func TestEventFields(t *testing.T) {
	d, c, path := newTestDir(t)
	code := 0
	e := Event{
		Kind: End, Run: "r1", Version: "v1", PID: 7, UID: 1000, Argv: []string{"sh", "-c", "a && b <c>"},
		Dir: "/w/sub", Workspace: "/w", Backend: "bwrap", Confined: true, Layer: "namespaces",
		Gaps:    []Gap{{Rule: "limits.memory", Reason: "no cgroup"}},
		Policy:  []PolicyFile{{Path: "/w/.cloche.yaml", SHA256: "ab"}},
		Network: "none", Env: []string{"PATH", "TOKEN=hunter2"}, ExitCode: &code, Signal: "SIGKILL", DurationMS: 12,
		TimedOut: true, Canceled: true, Truncated: true, Exceeded: "output", Refusal: "unavailable", Cause: "apparmor",
		Subject: "/x", Access: "write", Verdict: "deny", Rule: "policy.yaml:3", Reason: "why", Notices: []string{"n"}, Error: "e",
	}
	must(t, d.Record(e))
	line := lines(t, path, dayName(c.at))[0]
	var got map[string]any
	must(t, json.Unmarshal(line, &got))
	want := map[string]any{
		"time": "2031-03-01T09:00:00.123456789Z", "seq": 1.0, "kind": "end", "run": "r1", "version": "v1", "pid": 7.0, "uid": 1000.0,
		"argv": []any{"sh", "-c", "a && b <c>"}, "dir": "/w/sub", "workspace": "/w", "backend": "bwrap", "confined": true,
		"layer": "namespaces", "gaps": []any{map[string]any{"rule": "limits.memory", "reason": "no cgroup"}},
		"policy":  []any{map[string]any{"path": "/w/.cloche.yaml", "sha256": "ab"}},
		"network": "none", "env": []any{"PATH", "TOKEN"}, "exit_code": 0.0, "signal": "SIGKILL", "duration_ms": 12.0,
		"timed_out": true, "canceled": true, "truncated": true, "exceeded": "output",
		"subject": "/x", "access": "write", "verdict": "deny", "rule": "policy.yaml:3", "reason": "why",
		"notices": []any{"n"}, "error": "e", "refusal": "unavailable", "cause": "apparmor", "prev": genesis,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if strings.Contains(string(line), "hunter2") || !strings.Contains(string(line), "a && b <c>") {
		t.Errorf("line %s", line)
	}
}

// W8: a huge command line is cut, and stays valid text.
func TestLongArgvIsClipped(t *testing.T) {
	long := strings.Repeat("é", maxArg)
	argv := []string{"prog"}
	for range 100 {
		argv = append(argv, long)
	}
	e := Event{Argv: argv}.prepare(time.Now)
	total := 0
	for _, a := range e.Argv {
		total += len(a)
		if strings.ToValidUTF8(a, "") != a || len(a) > maxArg {
			t.Fatalf("an argument of %d bytes was cut badly", len(a))
		}
	}
	if !e.Clipped || total > maxArgv || total < maxArgv/2 || e.Argv[0] != "prog" {
		t.Errorf("clipped %v to %d bytes", e.Clipped, total)
	}
	if e := (Event{Argv: []string{"short", ""}}).prepare(time.Now); e.Clipped || len(e.Argv) != 2 {
		t.Errorf("a short one: %+v", e)
	}
}

// W8: one file per day of UTC, chained, with the name of the file before.
func TestDayRollover(t *testing.T) {
	d, c, path := newTestDir(t)
	c.at = time.Date(2031, 3, 1, 1, 0, 0, 0, time.FixedZone("east", 3*3600)) // 28 February in UTC
	record(t, d, 1)
	c.at = c.at.Add(24 * time.Hour)
	record(t, d, 2)
	c.at = c.at.Add(24 * time.Hour)
	record(t, d, 1)
	r := verify(t, path)
	expectFindings(t, r)
	want := []string{"audit-2031-02-28.jsonl", "audit-2031-03-01.jsonl", "audit-2031-03-02.jsonl"}
	if !reflect.DeepEqual(r.Files, want) || r.Count != 4 {
		t.Errorf("got %v", r)
	}
	first, err := decode(lines(t, path, want[2])[0])
	must(t, err)
	if first.PrevFile != want[1] {
		t.Errorf("the file before is %q", first.PrevFile)
	}
}

// W8: a clock that is set back does not break the order of the files.
func TestClockSetBack(t *testing.T) {
	d, c, path := newTestDir(t)
	c.at = day(5)
	record(t, d, 1)
	c.at = day(2)
	record(t, d, 1)
	c.at = day(6)
	record(t, d, 1)
	r := verify(t, path)
	expectFindings(t, r)
	if len(r.Files) != 2 {
		t.Errorf("files %v", r.Files)
	}
	e, err := decode(lines(t, path, r.Files[0])[1])
	must(t, err)
	if !e.Time.Equal(day(2)) {
		t.Errorf("the event says %v", e.Time)
	}
}

// W8: many goroutines, on one Dir and on several.
func TestConcurrentGoroutines(t *testing.T) {
	d, _, path := newTestDir(t)
	other := NewDir(path)
	other.now = d.now
	defer other.Close()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 25 {
				sink := d
				if i%2 == 0 {
					sink = other
				}
				if err := sink.Record(Event{Kind: Start}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r := verify(t, path)
	expectFindings(t, r)
	if r.Count != 200 {
		t.Errorf("%d lines", r.Count)
	}
}

// W8: many processes at once.
func TestConcurrentProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	self, err := os.Executable()
	must(t, err)
	var children []*exec.Cmd
	for range 6 {
		c := exec.Command(self, path, "40")
		c.Env = append(os.Environ(), childVar+"=plain")
		c.Stderr = os.Stderr
		must(t, c.Start())
		children = append(children, c)
	}
	for _, c := range children {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	r := verify(t, path)
	expectFindings(t, r)
	seen := map[string]bool{}
	for e, err := range Read(path, Filter{}) {
		must(t, err)
		seen[e.Run] = true
	}
	if r.Count != 240 || len(seen) != 240 {
		t.Errorf("%d lines, %d different", r.Count, len(seen))
	}
}

// sizeOf is how much the files of a folder hold, which need not be there.
func sizeOf(t *testing.T, dir string) (size int64) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			size += info.Size()
		}
	}
	return size
}

// W8: a process that is killed at any moment leaves a log that goes on.
func TestKilledWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	self, err := os.Executable()
	must(t, err)
	for range 10 {
		c := exec.Command(self, path, "1000000")
		c.Env = append(os.Environ(), childVar+"=plain")
		before := sizeOf(t, path)
		must(t, c.Start())
		testenv.Eventually(t, "the process writes", func() bool { return sizeOf(t, path) != before })
		must(t, c.Process.Kill())
		c.Wait()
	}
	d := NewDir(path)
	defer d.Close()
	must(t, d.Record(Event{Kind: Start}))
	r := verify(t, path)
	if !r.OK() || r.Count < 2 {
		t.Errorf("%d lines, %v", r.Count, r.Findings)
	}
}

// W8: the error of the system comes through, the line is not half there, and
// the log goes on.
func TestWriteErrors(t *testing.T) {
	d, c, path := newTestDir(t)
	record(t, d, 1)
	full := errors.New("no space left")
	for _, part := range []int{0, 10} {
		d.write = func(f *os.File, b []byte) (int, error) {
			n, _ := f.Write(b[:part])
			return n, full
		}
		if err := d.Record(Event{Kind: End}); !errors.Is(err, full) || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
	}
	d.write = func(f *os.File, b []byte) (int, error) { return f.Write(b[:7]) }
	if err := d.Record(Event{Kind: End}); err == nil {
		t.Error("a short write went unnoticed")
	}
	d.write = (*os.File).Write
	record(t, d, 1)
	expectFindings(t, verify(t, path))
	if n := len(lines(t, path, dayName(c.at))); n != 2 {
		t.Errorf("%d lines", n)
	}
}

// W8: the folder is removed under a session that goes on.
func TestFolderRemovedMeanwhile(t *testing.T) {
	d, c, path := newTestDir(t)
	record(t, d, 2)
	must(t, os.RemoveAll(path))
	record(t, d, 1)
	if r := verify(t, path); r.Count != 1 || !r.OK() {
		t.Errorf("a new log: %+v", r)
	}
	must(t, os.Remove(filepath.Join(path, dayName(c.at))))
	record(t, d, 1)
	expectFindings(t, verify(t, path), "removed "+dayName(c.at)+":1")
}

// W8: a closed log can be used again.
func TestRecordAfterClose(t *testing.T) {
	d, _, path := newTestDir(t)
	record(t, d, 1)
	must(t, d.Close())
	record(t, d, 1)
	if r := verify(t, path); r.Count != 2 || !r.OK() {
		t.Errorf("got %+v", r)
	}
}

// W8: a head of a later version is left alone.
func TestNewerFormatRefused(t *testing.T) {
	d, c, path := newTestDir(t)
	record(t, d, 1)
	h := head{Format: 9, Count: 1, Hash: genesis, File: dayName(c.at)}
	data, err := json.Marshal(h)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(path, headName), data, 0o600))
	if err := d.Record(Event{}); err == nil || !strings.Contains(err.Error(), "format 9") {
		t.Errorf("got %v", err)
	}
}

// W8: the log redacts by itself.
func TestLogRedacts(t *testing.T) {
	d, c, path := newTestDir(t)
	e := Event{Argv: []string{"tool", "--password", "hunter2"}, Env: []string{"KEY=hunter2"}}
	must(t, d.Record(e))
	if line := lines(t, path, dayName(c.at))[0]; strings.Contains(string(line), "hunter2") {
		t.Errorf("line %s", line)
	}
	if got := e.prepare(time.Now); got.Argv[2] != redact.Replacement || got.Env[0] != "KEY" {
		t.Errorf("event %+v", got)
	}
	if e.Argv[2] != "hunter2" {
		t.Error("the caller's command line was changed")
	}
}

func BenchmarkRecord(b *testing.B) {
	d := NewDir(filepath.Join(b.TempDir(), "audit"))
	defer d.Close()
	for b.Loop() {
		if err := d.Record(Event{Kind: Start, Argv: []string{"go", "test", "./..."}, Dir: "/w"}); err != nil {
			b.Fatal(err)
		}
	}
}
