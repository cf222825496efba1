package host

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// L6: a search that goes on beside other work finds what one does that is waited
// for, and what has changed since the index was made.
func TestSearchBegins(t *testing.T) {
	root, cache := t.TempDir(), t.TempDir()
	search := Search{Root: root, Names: wanted}
	if found, err := NewSearcher(search, cache).Begin().Wait(); err != nil || len(found.Files) != 0 {
		t.Fatalf("an empty folder: %+v, %v", found, err)
	}
	grow(t, root, 220, 0) // enough for several threads
	place(t, root, "d01/e00/.env")
	time.Sleep(stampGrain + 10*time.Millisecond)
	findPaths(t, NewSearcher(search, cache))
	s := NewSearcher(search, cache)
	if info, err := os.Stat(s.file); err != nil || info.Size() < slowSearch {
		t.Fatalf("the index is too small for this test: %v", err)
	}
	place(t, root, "d39/e04/.env.local")
	var all sync.WaitGroup
	wait := s.Begin().Wait
	for range 3 { // as copies of a snapshot may
		all.Go(func() {
			found, err := wait()
			if err != nil || !slices.Equal(pathsOf(found), []string{"d01/e00/.env", "d39/e04/.env.local"}) {
				t.Errorf("found %+v, %v", found, err)
			}
		})
	}
	all.Wait()
	s.Begin()
	s.Close() // while it goes on
	mustDo(t, os.RemoveAll(root))
	if _, err := NewSearcher(search, cache).Begin().Wait(); err == nil {
		t.Error("a folder that is gone was searched")
	}
}

// L6: a snapshot waits for searches once, and its copies have what was found.
func TestSnapshotSearches(t *testing.T) {
	calls := 0
	s := &Snapshot{}
	s.SearchWith(func() []*Found { calls++; return []*Found{{Root: "/x"}} })
	again := *s
	for range 2 {
		if f := s.FoundFiles(); len(f) != 1 || f[0].Root != "/x" || calls != 1 {
			t.Errorf("%+v after %d calls", f, calls)
		}
	}
	if f := again.FoundFiles(); len(f) != 1 {
		t.Errorf("the copy has %+v", f)
	}
}
