package search

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/hostfs"
)

var wanted = []string{".env", ".env.local", "*.secret"}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// place makes a file with its folders.
func place(t testing.TB, root, rel string) {
	t.Helper()
	mustDo(t, os.MkdirAll(filepath.Join(root, filepath.Dir(rel)), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(root, rel), []byte("x"), 0o644))
}

func findPaths(t testing.TB, s *Searcher) []string {
	t.Helper()
	found, err := s.Find()
	mustDo(t, err)
	return pathsOf(found)
}

func pathsOf(f *hostfs.Found) []string {
	var out []string
	for _, file := range f.Files {
		out = append(out, file.Path)
	}
	return out
}

// L6: files are found by name at any depth, and what programs fetch is left out.
func TestSearch(t *testing.T) {
	root := t.TempDir()
	for _, f := range []string{".env", "a/.env", "a/b/c/.env.local", "a/key.secret", "a/.env.example", "node_modules/x/.env", "a/vendor/.env", ".git/.env", "b/notes"} {
		place(t, root, f)
	}
	mustDo(t, os.MkdirAll(root+"/b/.env", 0o755)) // a folder, of Python's say
	place(t, root, "b/.env/.env")
	mustDo(t, os.Symlink("../a", root+"/b/link"))
	mustDo(t, os.Symlink("notes", root+"/b/.env.local"))
	mustDo(t, os.MkdirAll(root+"/c", 0o755))
	mustDo(t, syscall.Mkfifo(root+"/c/.env", 0o600)) // of a password manager
	want := []string{".env", "a/.env", "a/b/c/.env.local", "a/key.secret", "b/.env.local", "b/.env/.env", "c/.env"}
	s := New(hostfs.Search{Root: root, Names: wanted}, "")
	for range 3 {
		if got := findPaths(t, s); !slices.Equal(got, want) {
			t.Fatalf("found %q, want %q", got, want)
		}
	}
	if plain := pathsOf(In(hostfs.OS{}, hostfs.Search{Root: root, Names: wanted})); !slices.Equal(plain, want) {
		t.Errorf("a plain walk finds %q, want %q", plain, want)
	}
}

// L6: whatever is done to a tree, a search that remembers finds what a walk does,
// at once: also for changes that follow each other within a tick of the clock.
func TestSearchAfterEdits(t *testing.T) {
	for name, from := range map[string]int{"looked at": 1 << 30, "told": 1} {
		t.Run(name, func(t *testing.T) { searchAfterEdits(t, from) })
	}
}

func searchAfterEdits(t *testing.T, watchFrom int) {
	root, cache := t.TempDir(), t.TempDir()
	mustDo(t, os.Chmod(cache, 0o700))
	seed := time.Now().UnixNano()
	rnd := rand.New(rand.NewPCG(uint64(seed), 1))
	e := &editor{t: t, root: root, rnd: rnd}
	for range 60 {
		e.edit()
	}
	kept := New(hostfs.Search{Root: root, Names: wanted}, cache)
	kept.watchFrom = watchFrom
	defer kept.Close()
	settled, told := 0, 0
	for step := range 400 {
		for range 1 + rnd.IntN(4) {
			e.edit()
		}
		if rnd.IntN(12) == 0 {
			time.Sleep(stampGrain + 5*time.Millisecond) // older than the clock of the file system is coarse
		}
		want := In(hostfs.OS{}, hostfs.Search{Root: root, Names: wanted})
		s := kept
		if rnd.IntN(3) == 0 {
			s = New(hostfs.Search{Root: root, Names: wanted}, cache) // another process
		}
		if got := findPaths(t, s); !slices.Equal(got, pathsOf(want)) {
			t.Fatalf("seed %d, step %d, after %v: found\n%q, want\n%q", seed, step, e.last, got, pathsOf(want))
		}
		if s.watched {
			told++
		}
		for i := range s.index {
			if s.index[i].settled {
				settled++
			}
		}
	}
	if settled == 0 || (told == 0) == (watchFrom == 1) {
		t.Fatalf("%d folders were remembered, and %d searches were notified", settled, told)
	}
}

// An editor changes a tree at random.
type editor struct {
	t    *testing.T
	root string
	rnd  *rand.Rand
	last []string
}

func (e *editor) edit() {
	dirs, files := []string{e.root}, []string{}
	_ = filepath.WalkDir(e.root, func(p string, d os.DirEntry, err error) error {
		if err == nil && p != e.root {
			if d.IsDir() {
				dirs = append(dirs, p)
			} else {
				files = append(files, p)
			}
		}
		return nil
	})
	dir := dirs[e.rnd.IntN(len(dirs))]
	name := []string{".env", ".env.local", "k.secret", "notes", "vendor", "a", "b", "c", "d", "e"}[e.rnd.IntN(10)]
	target := filepath.Join(dir, name)
	var what string
	switch e.rnd.IntN(8) {
	case 0, 1:
		what = "mkdir"
		_ = os.Mkdir(target, 0o755)
	case 2, 3:
		what = "file"
		if f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
			f.Close()
		}
	case 4:
		what = "rename folder"
		_ = os.Rename(dirs[e.rnd.IntN(len(dirs))], target)
	case 5:
		what = "rename file"
		if len(files) > 0 {
			_ = os.Rename(files[e.rnd.IntN(len(files))], target)
		}
	case 6:
		what = "remove"
		if e.rnd.IntN(4) == 0 && dir != e.root {
			_ = os.RemoveAll(dir)
		} else {
			_ = os.Remove(target)
		}
	case 7:
		what = "link, or old times"
		if e.rnd.IntN(2) == 0 {
			_ = os.Symlink(dirs[e.rnd.IntN(len(dirs))], target)
		} else {
			_ = os.Chtimes(dir, time.Unix(1e9, 0), time.Unix(1e9, 0))
		}
	}
	e.last = append(e.last[max(0, len(e.last)-5):], what+" "+target)
}

// N10: a watched tree is followed where folders go and come back under their
// names, moved, or removed while somebody has them open, and where the root is
// another one.
func TestSearchWatched(t *testing.T) {
	for name, change := range map[string]func(root string) error{
		"file made":    func(root string) error { return os.WriteFile(root+"/d01/.env", nil, 0o644) },
		"other file":   func(root string) error { return os.WriteFile(root+"/d01/notes", nil, 0o644) },
		"folder made":  func(root string) error { place(t, root, "new/deep/.env"); return nil },
		"file removed": func(root string) error { return os.Remove(root + "/d02/.env") },
		"folder moved": func(root string) error { return os.Rename(root+"/d02", root+"/d03/moved") },
		"made again": func(root string) error {
			open, err := os.Open(root + "/d02")
			mustDo(t, err)
			t.Cleanup(func() { open.Close() })
			mustDo(t, os.RemoveAll(root+"/d02"))
			place(t, root, "d02/x/.env")
			return nil
		},
		"root replaced": func(root string) error {
			mustDo(t, os.Rename(root, root+".old"))
			place(t, root, "a/.env")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir() + "/tree"
			grow(t, root, 30, 0)
			place(t, root, "d02/.env")
			search := hostfs.Search{Root: root, Names: wanted}
			s := New(search, "")
			s.watchFrom = 1
			defer s.Close()
			for range 4 {
				findPaths(t, s)
			}
			if !s.watched {
				t.Fatal("the tree is not watched")
			}
			for round := range 3 {
				if round == 0 {
					mustDo(t, change(root))
				} else {
					place(t, root, fmt.Sprintf("d02/later%d/.env", round))
				}
				if got, want := findPaths(t, s), pathsOf(In(hostfs.OS{}, search)); !slices.Equal(got, want) {
					t.Errorf("round %d: found %q, want %q", round, got, want)
				}
			}
		})
	}
}

// grow makes folders in a tree of the given width.
func grow(t testing.TB, root string, folders, files int) {
	t.Helper()
	for i := range folders {
		dir := filepath.Join(root, fmt.Sprintf("d%02d/e%02d/f%d", i%40, i/40%40, i/1600))
		mustDo(t, os.MkdirAll(dir, 0o755))
		for j := range files {
			mustDo(t, os.WriteFile(fmt.Sprintf("%s/file%d.go", dir, j), nil, 0o644))
		}
	}
}

// L6: the index survives the process, and one that is damaged, of another version
// or of another search is not believed.
func TestSearchIndexFile(t *testing.T) {
	root, cache := t.TempDir(), t.TempDir()
	grow(t, root, 60, 1)
	place(t, root, "d01/e00/.env")
	time.Sleep(stampGrain + 10*time.Millisecond) // older than the clock of the file system is coarse
	search := hostfs.Search{Root: root, Names: wanted}
	s := New(search, cache)
	want := findPaths(t, s)
	data, err := os.ReadFile(s.file)
	mustDo(t, err)
	if info, err := os.Stat(s.file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the index has the mode %v, %v", info.Mode(), err)
	}
	index, ok := decode(data)
	if !ok || !reflect.DeepEqual(index, s.index) {
		t.Error("what was read is not what was written")
	}
	for i := range data {
		bad := slices.Clone(data)
		bad[i] ^= 0x41
		if _, ok := decode(bad); ok {
			t.Fatalf("an index with byte %d changed is believed", i)
		}
	}
	for _, bad := range [][]byte{nil, data[:40], data[:len(data)-1], append(slices.Clone(data), 0)} {
		mustDo(t, os.WriteFile(s.file, bad, 0o600))
		if got := findPaths(t, New(search, cache)); !slices.Equal(got, want) {
			t.Errorf("with a damaged index of %d bytes: found %q, want %q", len(bad), got, want)
		}
	}
	if other := New(hostfs.Search{Root: root, Names: []string{".env"}}, cache); other.file == s.file {
		t.Error("another search has the same index")
	}
}

// F14: files that were found stay found if a command makes more folders than a
// search looks into, and what was not looked into is counted.
func TestSearchCannotBeBuried(t *testing.T) {
	root, cache := t.TempDir(), t.TempDir()
	place(t, root, "z/deep/down/.env")
	search := hostfs.Search{Root: root, Names: wanted}
	findPaths(t, New(search, cache))
	for i := range 200 {
		mustDo(t, os.MkdirAll(fmt.Sprintf("%s/a%03d", root, i), 0o755))
	}
	s := New(search, cache)
	s.folders = 50
	found, err := s.Find()
	mustDo(t, err)
	if !slices.Equal(pathsOf(found), []string{"z/deep/down/.env"}) || found.Unseen != 200-(50-4) || found.Slow {
		t.Errorf("found %+v", found)
	}
	for i := range 190 {
		mustDo(t, os.Remove(fmt.Sprintf("%s/a%03d", root, i)))
	}
	place(t, root, "a195/.env")
	if found, _ = s.Find(); found.Unseen != 0 || len(found.Files) != 2 {
		t.Errorf("with room again found %+v", found)
	}
}

// F14: a search that runs out of time says so, and the next one goes on.
func TestSearchOutOfTime(t *testing.T) {
	root := t.TempDir()
	grow(t, root, 100, 0)
	place(t, root, "d07/e00/f0/.env")
	s := New(hostfs.Search{Root: root, Names: wanted}, t.TempDir())
	s.time = time.Microsecond
	found, err := s.Find()
	mustDo(t, err)
	if found.Unseen == 0 || !found.Slow {
		t.Fatalf("found %+v", found)
	}
	s.time = time.Minute
	if found, _ = s.Find(); found.Unseen != 0 || found.Slow || !slices.Equal(pathsOf(found), []string{"d07/e00/f0/.env"}) {
		t.Errorf("then found %+v", found)
	}
	// What was found stays found although nothing can be read.
	place(t, root, "d07/e00/f0/other")
	s.time = -time.Second
	if found, _ = s.Find(); !slices.Equal(pathsOf(found), []string{"d07/e00/f0/.env"}) || found.Unseen == 0 {
		t.Errorf("without time found %+v", found)
	}
}

// L6: a folder that is not in use by anyone else is not trusted while a change
// could still leave the same stamp.
func TestStampsSettle(t *testing.T) {
	now := time.Unix(1_000_000, 500)
	for _, tt := range []struct {
		changed time.Time
		want    bool
	}{
		{now.Add(-time.Hour), true}, {now.Add(-stampGrain / 2), false}, {now.Add(time.Hour), false},
		{time.Unix(1_000_000-1, 0), false}, {time.Unix(1_000_000-3, 0), true},
	} {
		s := stamp{sec: tt.changed.Unix(), nsec: uint32(tt.changed.Nanosecond())}
		if s.settledAt(now) != tt.want {
			t.Errorf("changed %v before: settled is %v", now.Sub(tt.changed), !tt.want)
		}
	}
}

func BenchmarkSearch(b *testing.B) {
	for _, size := range []struct {
		name           string
		folders, files int
	}{{"empty", 0, 0}, {"20k files", 2000, 10}, {"100k files", 18000, 5}} {
		root, cache := b.TempDir(), b.TempDir()
		grow(b, root, size.folders, size.files)
		time.Sleep(2 * stampGrain) // older than the clock of the file system is coarse
		search := hostfs.Search{Root: root, Names: wanted}
		b.Run(size.name+"/no index", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustDoFind(b, New(search, ""))
			}
		})
		mustDoFind(b, New(search, cache))
		b.Run(size.name+"/index", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustDoFind(b, New(search, cache))
			}
		})
		s := New(search, cache)
		defer s.Close()
		b.Run(size.name+"/again", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustDoFind(b, s)
			}
		})
	}
}

func mustDoFind(b *testing.B, s *Searcher) {
	b.Helper()
	s.time = time.Minute
	found, err := s.Find()
	if err != nil || found.Unseen > 0 {
		b.Fatalf("%+v, %v", found, err)
	}
}
