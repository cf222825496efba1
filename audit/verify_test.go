package audit

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// W8: an untouched log has no findings, and its hash is that of the last line.
func TestVerifyUntouched(t *testing.T) {
	_, path, files := filled(t)
	r := verify(t, path)
	expectFindings(t, r)
	last := lines(t, path, files[2])[3]
	if !r.OK() || r.Count != 12 || r.Hash != hashOf(last) || !slices.Equal(r.Files, files) {
		t.Errorf("got %+v", r)
	}
}

// W8
func TestVerifyNoLog(t *testing.T) {
	if _, err := Verify(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	empty := t.TempDir()
	if r, err := Verify(empty); err != nil || !r.OK() || r.Count != 0 {
		t.Errorf("an empty folder: %+v, %v", r, err)
	}
}

// forge makes a line that fits after another one, as somebody who knows the
// scheme would.
func forge(t *testing.T, after []byte) []byte {
	t.Helper()
	e, err := decode(after)
	must(t, err)
	line, err := encode(Event{Kind: Start, Time: e.Time, Seq: e.Seq + 1, Run: "forged", Prev: hashOf(after)})
	must(t, err)
	return line
}

// W8: each sort of tampering is found at its line. A, B and C are the files, of
// four lines each.
func TestVerifyFindsTampering(t *testing.T) {
	// edit changes the lines of one file.
	edit := func(file int, change func(t *testing.T, l [][]byte) [][]byte) func(*testing.T, string, []string) {
		return func(t *testing.T, path string, files []string) {
			setLines(t, path, files[file], change(t, lines(t, path, files[file])))
		}
	}
	replace := func(file, line int, old, new string) func(*testing.T, string, []string) {
		return edit(file, func(t *testing.T, l [][]byte) [][]byte {
			changed := bytes.Replace(l[line-1], []byte(old), []byte(new), 1)
			if bytes.Equal(changed, l[line-1]) {
				t.Fatalf("%q is not in %s", old, l[line-1])
			}
			l[line-1] = changed
			return l
		})
	}
	remove := func(file, from, to int) func(*testing.T, string, []string) {
		return edit(file, func(_ *testing.T, l [][]byte) [][]byte { return slices.Delete(l, from-1, to) })
	}
	insert := func(file, at int, line func(t *testing.T, l [][]byte) []byte) func(*testing.T, string, []string) {
		return edit(file, func(t *testing.T, l [][]byte) [][]byte { return slices.Insert(l, at-1, line(t, l)) })
	}
	rm := func(names ...int) func(*testing.T, string, []string) {
		return func(t *testing.T, path string, files []string) {
			for _, n := range names {
				must(t, os.Remove(filepath.Join(path, files[n])))
			}
		}
	}
	cut := func(file int, bytes int64) func(*testing.T, string, []string) {
		return func(t *testing.T, path string, files []string) {
			p := filepath.Join(path, files[file])
			info, err := os.Stat(p)
			must(t, err)
			must(t, os.Truncate(p, info.Size()-bytes))
		}
	}
	for _, c := range []struct {
		name   string
		tamper func(*testing.T, string, []string)
		want   []string
	}{
		{"first line changed", replace(0, 1, `"make"`, `"rm"`), []string{"changed A:1"}},
		{"middle line changed", replace(1, 2, `"make"`, `"rm"`), []string{"changed B:2"}},
		{"last line of a day changed", replace(0, 4, `"make"`, `"rm"`), []string{"changed A:4"}},
		{"last line changed", replace(2, 4, `"make"`, `"rm"`), []string{"changed C:4"}},
		{"a space added", replace(1, 3, `,"kind"`, `, "kind"`), []string{"changed B:3"}},
		{"number changed", replace(1, 2, `"seq":6`, `"seq":9`), []string{"changed B:2"}},
		{"number made huge", replace(1, 2, `"seq":6`, `"seq":9999999999999999`), []string{"changed B:2"}},
		{"number of the last line changed", replace(2, 4, `"seq":12`, `"seq":13`), []string{"changed C:4"}},
		{"link changed", replace(1, 2, `"prev":"`, `"prev":"00`), []string{"changed B:2"}},
		{"first link changed", replace(0, 1, `"prev":"0`, `"prev":"1`), []string{"changed A:1"}},
		{"number and link changed", edit(1, func(_ *testing.T, l [][]byte) [][]byte {
			l[1] = []byte(`{"seq":900,"prev":"00"}`)
			return l
		}), []string{"changed B:2"}},
		{"line destroyed", replace(1, 2, `{"time"`, `xx`), []string{"changed B:2"}},
		{"two lines destroyed", edit(1, func(_ *testing.T, l [][]byte) [][]byte { l[1], l[2] = []byte("x"), []byte("y"); return l }),
			[]string{"changed B:2", "changed B:3"}},
		{"last line destroyed", replace(2, 4, `{"time"`, `xx`), []string{"changed C:4"}},
		{"line emptied", edit(1, func(_ *testing.T, l [][]byte) [][]byte { l[1] = nil; return l }), []string{"changed B:2"}},
		{"first line removed", remove(0, 1, 1), []string{"removed A:1"}},
		{"middle line removed", remove(1, 2, 2), []string{"removed B:2"}},
		{"three lines removed", remove(1, 1, 3), []string{"removed B:1"}},
		{"end of a day removed", remove(0, 3, 4), []string{"removed B:1"}},
		{"last line removed", remove(2, 4, 4), []string{"cut-off C:3"}},
		{"last lines removed", remove(2, 2, 4), []string{"cut-off C:1"}},
		{"last line cut in half", cut(2, 40), []string{"changed C:4"}},
		{"file emptied", func(t *testing.T, path string, files []string) {
			must(t, os.Truncate(filepath.Join(path, files[2]), 0))
		}, []string{"cut-off B:4"}},
		{"first file removed", rm(0), []string{"missing-file A:0"}},
		{"middle file removed", rm(1), []string{"missing-file B:0"}},
		{"last file removed", rm(2), []string{"missing-file C:0"}},
		{"two files removed", rm(0, 1), []string{"missing-file B:0"}},
		{"all files removed", rm(0, 1, 2), []string{"missing-file C:0"}},
		{"copy inserted", insert(1, 4, func(_ *testing.T, l [][]byte) []byte { return l[0] }), []string{"inserted B:4"}},
		{"copy appended", insert(2, 5, func(_ *testing.T, l [][]byte) []byte { return l[1] }), []string{"inserted C:5"}},
		{"forged line inserted", insert(1, 3, func(t *testing.T, l [][]byte) []byte { return forge(t, l[1]) }), []string{"inserted B:3"}},
		{"forged line for the last", insert(2, 4, func(t *testing.T, l [][]byte) []byte { return forge(t, l[2]) }), []string{"inserted C:4"}},
		{"unlinked line inserted", insert(1, 2, func(*testing.T, [][]byte) []byte { return []byte(`{"seq":400,"prev":"ff"}`) }), []string{"inserted B:2"}},
		{"garbage inserted", insert(1, 2, func(*testing.T, [][]byte) []byte { return []byte("hello") }), []string{"inserted B:2"}},
		{"garbage appended", insert(2, 5, func(*testing.T, [][]byte) []byte { return []byte("hello") }), []string{"inserted C:5"}},
		{"neighbours swapped", edit(1, func(_ *testing.T, l [][]byte) [][]byte { l[1], l[2] = l[2], l[1]; return l }),
			[]string{"reordered B:2", "reordered B:3"}},
		{"line moved to the end", edit(2, func(_ *testing.T, l [][]byte) [][]byte { return [][]byte{l[1], l[2], l[3], l[0]} }),
			[]string{"reordered C:1", "reordered C:4"}},
		{"files exchanged", func(t *testing.T, path string, files []string) {
			a, b := filepath.Join(path, files[0]), filepath.Join(path, files[1])
			must(t, os.Rename(a, a+".x"))
			must(t, os.Rename(b, a))
			must(t, os.Rename(a+".x", b))
		}, []string{"reordered A:1", "reordered B:1", "reordered B:2", "reordered B:3", "reordered B:4"}},
		{"head removed", func(t *testing.T, path string, _ []string) {
			must(t, os.Remove(filepath.Join(path, headName)))
		}, []string{"bad-head head.json:0"}},
		{"head damaged", func(t *testing.T, path string, _ []string) {
			must(t, os.WriteFile(filepath.Join(path, headName), []byte("{}"), 0o600))
		}, []string{"bad-head head.json:0"}},
		{"head of an earlier time with another hash", func(t *testing.T, path string, files []string) {
			f, err := os.OpenFile(filepath.Join(path, headName), os.O_RDWR, 0)
			must(t, err)
			defer f.Close()
			must(t, head{Count: 5, Hash: strings.Repeat("ab", 32), File: files[1], Size: 10}.writeTo(f))
		}, []string{"bad-head head.json:0"}},
		{"two things at once", func(t *testing.T, path string, files []string) {
			replace(0, 2, `"make"`, `"rm"`)(t, path, files)
			remove(2, 4, 4)(t, path, files)
		}, []string{"changed A:2", "cut-off C:3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, path, files := filled(t)
			c.tamper(t, path, files)
			r := verify(t, path)
			names := strings.NewReplacer("A:", files[0]+":", "B:", files[1]+":", "C:", files[2]+":")
			for i := range c.want {
				c.want[i] = names.Replace(c.want[i])
			}
			expectFindings(t, r, c.want...)
			if r.OK() {
				t.Error("the log counts as untouched")
			}
			for _, f := range r.Findings {
				if f.Detail == "" || !strings.Contains(f.String(), f.File) {
					t.Errorf("finding without words: %+v", f)
				}
			}
		})
	}
}

// W8: what was found once is still found after the log went on.
func TestTamperingStaysVisible(t *testing.T) {
	for name, tamper := range map[string]func(path, last string) error{
		"cut-off lines": func(path, last string) error {
			data, err := os.ReadFile(filepath.Join(path, last))
			if err != nil {
				return err
			}
			first := bytes.IndexByte(data, '\n') + 1
			return os.Truncate(filepath.Join(path, last), int64(first))
		},
		"cut in a line": func(path, last string) error { return os.Truncate(filepath.Join(path, last), 50) },
		"newline": func(path, last string) error {
			f, err := os.OpenFile(filepath.Join(path, last), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte("x"), info.Size()-1)
			return err
		},
		"last file": func(path, last string) error { return os.Remove(filepath.Join(path, last)) },
		"head":      func(path, _ string) error { return os.Remove(filepath.Join(path, headName)) },
		"garbage": func(path, last string) error {
			f, err := os.OpenFile(filepath.Join(path, last), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("hello\nworld")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, path, files := filled(t)
			must(t, tamper(path, files[2]))
			record(t, d, 3)
			r := verify(t, path)
			if r.OK() {
				t.Error("forgotten")
			}
			if r.Count < 14 {
				t.Errorf("the log ends at line %d: %v", r.Count, r.Findings)
			}
		})
	}
}

// appendRaw adds bytes to a file as a dying writer would.
func appendRaw(t *testing.T, path, file string, data []byte) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(path, file), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	must(t, err)
	defer f.Close()
	_, err = f.Write(data)
	must(t, err)
}

// W8: a line that a crash left unfinished is no tampering, before and after
// the next line, in the same file and over the end of the day.
func TestTornLine(t *testing.T) {
	for _, nextDay := range []bool{false, true} {
		d, c, path := newTestDir(t)
		record(t, d, 2)
		file := dayName(c.at)
		appendRaw(t, path, file, []byte(`{"time":"2031-03-01T0`))
		torn := "torn " + file + ":3"
		expectFindings(t, verify(t, path), torn)
		if nextDay {
			c.at = day(2)
		}
		record(t, d, 2)
		r := verify(t, path)
		expectFindings(t, r, torn)
		if !r.OK() || r.Count != 4 {
			t.Errorf("got %+v", r)
		}
		if next := lines(t, path, file); !nextDay && string(next[2]) != `{"time":"2031-03-01T0` {
			t.Errorf("the torn line became %q", next[2])
		}
	}
}

// W8: the seal of a torn line names that line; another one is not covered.
func TestTornLineChanged(t *testing.T) {
	d, c, path := newTestDir(t)
	record(t, d, 2)
	file := dayName(c.at)
	appendRaw(t, path, file, []byte(`{"half`))
	record(t, d, 1)
	l := lines(t, path, file)
	l[2] = []byte(`{"other`)
	setLines(t, path, file, l)
	expectFindings(t, verify(t, path), "removed "+file+":4", "inserted "+file+":3")
}

// W8: a writer that died between its line and the head lost nothing, with or
// without the newline, also as the first of a day.
func TestLineWithoutHead(t *testing.T) {
	for _, c := range []struct {
		name    string
		newline string
		day     int
	}{{"whole", "\n", 1}, {"without newline", "", 1}, {"first of a day", "\n", 2}, {"first of a day, found later", "\n", 3}} {
		t.Run(c.name, func(t *testing.T) {
			d, clock, path := newTestDir(t)
			record(t, d, 2)
			l := lines(t, path, dayName(day(1)))
			file := dayName(day(min(c.day, 2)))
			appendRaw(t, path, file, append(forge(t, l[1]), c.newline...))
			expectFindings(t, verify(t, path))
			clock.at = day(c.day)
			record(t, d, 2)
			r := verify(t, path)
			expectFindings(t, r)
			if r.Count != 5 {
				t.Errorf("%d lines", r.Count)
			}
		})
	}
}

// W8: a lost head is rebuilt, and the log says so.
func TestHeadRepaired(t *testing.T) {
	d, path, files := filled(t)
	must(t, os.WriteFile(filepath.Join(path, headName), []byte("junk"), 0o600))
	record(t, d, 1)
	r := verify(t, path)
	expectFindings(t, r, "repaired "+files[2]+":5")
	if r.Count != 14 || len(lines(t, path, files[2])) != 6 {
		t.Errorf("got %+v", r)
	}
}

// W8: a chain that was rewritten as a whole no longer leads to a kept hash.
func TestKeptHashPinsTheLog(t *testing.T) {
	_, path, _ := filled(t)
	kept := verify(t, path)
	must(t, os.RemoveAll(path))
	d := NewDir(path)
	d.now = (&clock{at: day(1)}).now
	defer d.Close()
	record(t, d, 12)
	r := verify(t, path)
	if !r.OK() || r.Count != kept.Count || r.Hash == kept.Hash {
		t.Errorf("kept %s, now %+v", kept.Hash, r)
	}
}
