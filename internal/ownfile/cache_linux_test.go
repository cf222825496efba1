package ownfile

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// S2: what a writer left that was killed goes with a later write; what another one is writing,
// and what is no such file, stays.
func TestWriteRemovesWhatWasLeft(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * left)
	for name, when := range map[string]time.Time{".new-1": old, ".new-2": time.Now(), "other": old} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, when, when); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("other", filepath.Join(dir, ".new-link")); err != nil {
		t.Fatal(err)
	}
	if err := WriteCache(filepath.Join(dir, "file"), []byte("whole")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{".new-2", ".new-link", "file", "other"}; !slices.Equal(names, want) {
		t.Errorf("the folder has %q, want %q", names, want)
	}
}
