package audit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// collect reads a log to its end.
func collect(path string, f Filter) (events []Event, errs []error) {
	for e, err := range Read(path, f) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		events = append(events, e)
	}
	return events, errs
}

// W8: oldest first, over all files.
func TestReadOrder(t *testing.T) {
	_, path, _ := filled(t)
	events, errs := collect(path, Filter{})
	if len(events) != 12 || errs != nil {
		t.Fatalf("%d events, %v", len(events), errs)
	}
	for i, e := range events {
		if e.Seq != uint64(i)+1 {
			t.Errorf("event %d has number %d", i, e.Seq)
		}
	}
}

// W8
func TestReadFilter(t *testing.T) {
	d, c, path := newTestDir(t)
	for n := 1; n <= 3; n++ {
		c.at = day(n)
		must(t, d.Record(Event{Kind: Start, Run: "a", Workspace: "/w"}))
		must(t, d.Record(Event{Kind: End, Run: "b", Workspace: "/x"}))
	}
	for name, c := range map[string]struct {
		filter Filter
		want   int
	}{
		"all":   {Filter{}, 6},
		"since": {Filter{Since: day(2)}, 4},
		"after": {Filter{Since: day(2).Add(time.Second)}, 2},
		"both":  {Filter{Since: day(3), Match: func(e Event) bool { return e.Workspace == "/x" }}, 1},
		"match": {Filter{Match: func(e Event) bool { return e.Seq > 4 }}, 2},
		"none":  {Filter{Since: day(9)}, 0},
	} {
		if events, errs := collect(path, c.filter); len(events) != c.want || errs != nil {
			t.Errorf("%s: %d events, %v", name, len(events), errs)
		}
	}
}

// W8: lines that cannot be read are named, and the others still come.
func TestReadIsTolerant(t *testing.T) {
	_, path, files := filled(t)
	l := lines(t, path, files[1])
	l[1], l[2] = []byte("garbage"), []byte(`{"no":"number"}`)
	setLines(t, path, files[1], l)
	events, errs := collect(path, Filter{})
	var bad *LineError
	if len(events) != 10 || len(errs) != 2 || !errors.As(errs[0], &bad) || bad.File != files[1] || bad.Line != 2 {
		t.Errorf("%d events, %v", len(events), errs)
	}
}

// W8: no log is an empty log; the caller may stop early.
func TestReadEdges(t *testing.T) {
	if events, errs := collect(filepath.Join(t.TempDir(), "none"), Filter{}); events != nil || errs != nil {
		t.Errorf("no log: %v, %v", events, errs)
	}
	_, path, _ := filled(t)
	n := 0
	for range Read(path, Filter{}) {
		if n++; n == 5 {
			break
		}
	}
	if n != 5 {
		t.Errorf("stopped after %d", n)
	}
}

// W8: whatever a file holds, reading and checking end, and writing goes on.
func FuzzRead(f *testing.F) {
	d, c, path := newTestDir(f)
	record(f, d, 2)
	good, err := os.ReadFile(filepath.Join(path, dayName(c.at)))
	must(f, err)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(good[:len(good)/2])
	f.Add([]byte("\n\n{}\n[]\nnull\n{\"seq\":18446744073709551615}\n"))
	f.Add([]byte{0, 255, '\n'})
	f.Fuzz(func(t *testing.T, data []byte) {
		d, c, path := newTestDir(t)
		record(t, d, 1)
		must(t, os.WriteFile(filepath.Join(path, dayName(c.at)), data, 0o600))
		collect(path, Filter{})
		verify(t, path)
		must(t, d.Record(Event{Kind: End, Run: "after"}))
		events, _ := collect(path, Filter{Match: func(e Event) bool { return e.Run == "after" }})
		if len(events) == 0 {
			t.Fatal("the line written after the damage cannot be read")
		}
		must(t, os.Remove(filepath.Join(path, headName)))
		must(t, d.Record(Event{Kind: End, Run: "later"}))
		verify(t, path)
	})
}
