package host

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// nearSearcher is one of another process, for which a few folders are many.
func nearSearcher(root, cache string) *Searcher {
	s := NewSearcher(Search{Root: root, Names: wanted}, cache)
	s.whole, s.prompt = 50, 50
	return s
}

// largeTree has more folders than a search looks at, with a file far down.
func largeTree(t *testing.T) (root, cache string) {
	t.Helper()
	root, cache = t.TempDir(), t.TempDir()
	mustDo(t, os.Chmod(cache, 0o700))
	grow(t, root, 160, 0) // 40 folders, 160 in them, and 160 in those
	place(t, root, "d03/e01/f0/.env")
	time.Sleep(stampGrain + 10*time.Millisecond)
	return root, cache
}

func mustFind(t *testing.T, s *Searcher) *Found {
	t.Helper()
	found, err := s.Find()
	mustDo(t, err)
	return found
}

// L6 N9: in a large tree a search looks at the upper folders and at those of files
// that it knows. What it finds there is exact, what it did not look at is counted,
// and a renewal finds the rest.
func TestSearchNear(t *testing.T) {
	root, cache := largeTree(t)
	first := mustFind(t, nearSearcher(root, cache))
	if first.Later != 0 || first.Folders != 361 || !slices.Equal(pathsOf(first), []string{"d03/e01/f0/.env"}) {
		t.Fatalf("the first search found %+v", first)
	}
	for _, tt := range []struct {
		what   string
		change func() error
		want   []string // before it is renewed
		later  string   // what only a renewal finds
	}{
		{"nothing", func() error { return nil }, []string{"d03/e01/f0/.env"}, ""},
		{"a file above", func() error { place(t, root, "d07/.env"); return nil }, []string{"d03/e01/f0/.env", "d07/.env"}, ""},
		{"it is gone", func() error { return os.Remove(root + "/d07/.env") }, []string{"d03/e01/f0/.env"}, ""},
		{"the file below is another", func() error {
			return os.Rename(root+"/d03/e01/f0/.env", root+"/d03/e01/f0/.env.local")
		}, []string{"d03/e01/f0/.env.local"}, ""},
		{"a new folder above", func() error { place(t, root, "new/and/deep/.env"); return nil }, []string{"d03/e01/f0/.env.local", "new/and/deep/.env"}, ""},
		{"a new folder beside some that are not near", func() error { place(t, root, "d05/new/down/.env"); return nil },
			[]string{"d03/e01/f0/.env.local", "d05/new/down/.env", "new/and/deep/.env"}, ""},
		{"one for another", func() error {
			mustDo(t, os.Rename(root+"/d06/e01", root+"/elsewhere"))
			place(t, root, "d06/again/.env")
			return nil
		}, []string{"d03/e01/f0/.env.local", "d05/new/down/.env", "d06/again/.env", "new/and/deep/.env"}, ""},
		{"a file far down", func() error { place(t, root, "d20/e02/f0/.env"); return nil },
			[]string{"d03/e01/f0/.env.local", "d05/new/down/.env", "d06/again/.env", "new/and/deep/.env"}, "d20/e02/f0/.env"},
	} {
		mustDo(t, tt.change())
		s := nearSearcher(root, cache)
		got := mustFind(t, s)
		if !slices.Equal(pathsOf(got), tt.want) || got.Later < 100 || got.Looked.IsZero() || got.Unseen != 0 {
			t.Fatalf("%s: found %+v, want %q", tt.what, got, tt.want)
		}
		if tt.later == "" {
			continue
		}
		s.Renew(nil)
		want := append(slices.Clone(tt.want), tt.later)
		slices.Sort(want)
		for who, other := range map[string]*Searcher{"the same": s, "another": nearSearcher(root, cache)} {
			if got := findPaths(t, other); !slices.Equal(got, want) {
				t.Errorf("%s, renewed: %s search found %q, want %q", tt.what, who, got, want)
			}
		}
	}
}

// L6: all folders of a tree are looked at by every search until they are too many,
// and again when they are fewer.
func TestSearchWholeUntilLarge(t *testing.T) {
	root, cache := largeTree(t) // 361 folders
	searcher := func(whole int) *Searcher {
		s := nearSearcher(root, cache)
		s.whole = whole
		return s
	}
	for i, tt := range []struct{ whole, later int }{{361, 0}, {361, 0}, {360, 0}, {360, 309}, {361, 309}} {
		if found := mustFind(t, searcher(tt.whole)); found.Later != tt.later || found.Folders != 361 {
			t.Errorf("search %d, up to %d folders: %+v, want %d for later", i, tt.whole, found, tt.later)
		}
		place(t, root, "d09/.env") // the index is written where it knows of less
		mustDo(t, os.Remove(root+"/d09/.env"))
		time.Sleep(stampGrain + 5*time.Millisecond)
	}
	s := searcher(361)
	mustFind(t, s)
	s.Renew(nil)
	if found := mustFind(t, searcher(361)); found.Later != 0 || found.Folders != 361 {
		t.Errorf("renewed: %+v, want none for later", found)
	}
}

// L6: whatever is done to a large tree, a search after a renewal finds what a walk
// does.
func TestSearchRenewedAfterEdits(t *testing.T) {
	root, cache := largeTree(t)
	seed := time.Now().UnixNano()
	rnd := rand.New(rand.NewPCG(uint64(seed), 1))
	e := &editor{t: t, root: root, rnd: rnd}
	session := nearSearcher(root, cache)
	session.watchFrom = 1 << 30
	session.apart = true
	for step := range 30 {
		for range 1 + rnd.IntN(4) {
			e.edit()
		}
		if rnd.IntN(6) == 0 {
			time.Sleep(stampGrain + 5*time.Millisecond)
		}
		s := session
		if rnd.IntN(2) == 0 {
			s = nearSearcher(root, cache)
		}
		mustFind(t, s)
		if s.index.later > 0 {
			s.Renew(nil)
		}
		want := FindIn(OS{}, Search{Root: root, Names: wanted})
		if got := findPaths(t, s); !slices.Equal(got, pathsOf(want)) {
			t.Fatalf("seed %d, step %d, after %v: found\n%q, want\n%q", seed, step, e.last, got, pathsOf(want))
		}
	}
}

// N10: a session that searches again has the kernel tell of all folders, and then
// leaves none for later; where the kernel does not tell, it does.
func TestSearchTogether(t *testing.T) {
	root, cache := largeTree(t)
	mustFind(t, nearSearcher(root, cache))
	s := nearSearcher(root, cache)
	defer s.Close()
	mustFind(t, s)
	for range 2 {
		if found := mustFind(t, s); found.Later != 0 {
			t.Fatalf("found %+v", found)
		}
	}
	place(t, root, "d20/e02/f0/.env")
	if got := findPaths(t, s); !s.watched || !slices.Equal(got, []string{"d03/e01/f0/.env", "d20/e02/f0/.env"}) {
		t.Errorf("watched is %v, found %q", s.watched, got)
	}
	alone := nearSearcher(root, cache)
	alone.watchFrom = 1 << 30
	mustFind(t, alone)
	mustFind(t, alone)
	if found := mustFind(t, alone); found.Later < 100 {
		t.Errorf("without a watch found %+v", found)
	}
}

// F14: a whole index that is damaged or gone makes a search read all folders, and
// what cannot be kept is looked at each time.
func TestSearchWithoutWholeIndex(t *testing.T) {
	root, cache := largeTree(t)
	mustFind(t, nearSearcher(root, cache))
	file := nearSearcher(root, cache).wholeFile()
	for what, damage := range map[string]func() error{
		"gone": func() error { return os.Remove(file) }, "damaged": func() error { return os.WriteFile(file, []byte("x"), 0o600) },
	} {
		mustDo(t, damage())
		place(t, root, "d20/e02/f0/.env")
		place(t, root, "d05/"+what+"/.env") // for which the whole index is needed
		want := pathsOf(FindIn(OS{}, Search{Root: root, Names: wanted}))
		if got := findPaths(t, nearSearcher(root, cache)); !slices.Equal(got, want) {
			t.Errorf("%s: found %q, want %q", what, got, want)
		}
	}
	s := nearSearcher(root, "")
	for _, name := range []string{"d21/e02/f0/.env", "d22/e02/f0/.env"} {
		mustFind(t, s)
		place(t, root, name)
		if got := findPaths(t, s); !slices.Contains(got, name) {
			t.Errorf("without a file: %q is not in %q", name, got)
		}
	}
}

// F14: a renewal that is stopped changes nothing, and one that has just been made
// is not made again.
func TestRenewalIsStopped(t *testing.T) {
	root, cache := largeTree(t)
	mustFind(t, nearSearcher(root, cache))
	place(t, root, "d20/e02/f0/.env")
	s := nearSearcher(root, cache)
	want := pathsOf(mustFind(t, s))
	stop := make(chan struct{})
	close(stop)
	s.Renew(stop)
	if got := findPaths(t, nearSearcher(root, cache)); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if s.Renewable(time.Hour) || !s.Renewable(-time.Hour) {
		t.Error("how long ago the folders were looked at does not count")
	}
}

// F14: a first search that ran out of time is gone on with, by a renewal at once and
// by the next search, until nothing is left.
func TestSearchGoesOn(t *testing.T) {
	for name, goOn := range map[string]func(*Searcher){
		"renewal": func(s *Searcher) { s.Renew(nil) },
		"search":  func(s *Searcher) { s.time = time.Minute; mustFind(t, s) },
	} {
		root, cache := largeTree(t)
		s := nearSearcher(root, cache)
		s.whole, s.prompt, s.time = 10, 10, time.Nanosecond // the root is always read
		if found := mustFind(t, s); !found.Slow || found.Unseen != 40 || s.index.unread != 40 || s.index.later == 0 {
			t.Fatalf("%s: the first search found %+v", name, found)
		}
		if !s.Renewable(time.Hour) {
			t.Errorf("%s: what there was no time for is not to be renewed", name)
		}
		goOn(s)
		found := mustFind(t, s)
		if found.Unseen != 0 || found.Slow || !slices.Equal(pathsOf(found), []string{"d03/e01/f0/.env"}) {
			t.Errorf("%s: in the end found %+v", name, found)
		}
	}
}
