package host

import (
	"os"
	"testing"
	"time"
)

// L6, N10: that a search would find the same is known without one, and no longer
// after a change that it is about.
func TestStill(t *testing.T) {
	aside := func(root string) { mustDo(t, os.Rename(root, root+".old")) }
	for name, change := range map[string]func(root string) error{
		"file made":     func(root string) error { return os.WriteFile(root+"/.env", nil, 0o644) },
		"folder made":   func(root string) error { place(t, root, "new/deep/.env"); return nil },
		"root gone":     func(root string) error { aside(root); return nil },
		"root a file":   func(root string) error { aside(root); return os.WriteFile(root, nil, 0o644) },
		"root replaced": func(root string) error { aside(root); place(t, root, ".env"); return nil },
		"root a link":   func(root string) error { aside(root); return os.Symlink(t.TempDir(), root) },
	} {
		for kind, folders := range map[string]int{"one folder": 0, "some folders": 4, "watched": 30} {
			t.Run(name+", "+kind, func(t *testing.T) { testStill(t, folders, change) })
		}
	}
}

func testStill(t *testing.T, folders int, change func(root string) error) {
	root := t.TempDir() + "/tree"
	mustDo(t, os.Mkdir(root, 0o755))
	grow(t, root, folders, 0)
	s := NewSearcher(Search{Root: root, Names: wanted}, "")
	s.watchFrom = 25
	defer s.Close()
	time.Sleep(stampGrain + 5*time.Millisecond) // so that folders settle
	var found *Found
	for range 4 {
		var err error
		found, err = s.Find()
		mustDo(t, err)
	}
	if s.watched != (folders >= s.watchFrom) {
		t.Fatalf("watched: %v", s.watched)
	}
	for range 2 {
		if !s.Still(found) {
			t.Fatal("it takes a search to know that nothing has changed")
		}
	}
	mustDo(t, change(root))
	if s.Still(found) {
		t.Error("the change is not noticed")
	}
}

// Files that were found are looked at again: git may track them by now. What is
// known of another search, or of only a part of the tree, says nothing.
func TestStillTakesASearch(t *testing.T) {
	root := t.TempDir()
	place(t, root, "a/.env")
	time.Sleep(stampGrain + 5*time.Millisecond)
	s := NewSearcher(Search{Root: root, Names: wanted}, "")
	if s.Still(&Found{Root: root}) {
		t.Error("nothing was searched so far")
	}
	found, err := s.Find()
	mustDo(t, err)
	for name, f := range map[string]*Found{
		"files":        found,
		"no files":     {Root: root},
		"another root": {Root: root + "/a"},
		"not all seen": {Root: root, Unseen: 1},
	} {
		if s.Still(f) {
			t.Errorf("%s: it is said to be known", name)
		}
	}
}
