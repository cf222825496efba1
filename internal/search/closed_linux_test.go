package search_test

import (
	"os"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/search"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// L6: a file is found in a folder that can be searched and not listed.
func TestSearchClosedFolder(t *testing.T) {
	testenv.AlsoAsUser(t)
	root := t.TempDir()
	closed, shut := root+"/closed", root+"/shut"
	for _, dir := range []string{closed, shut} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/.env", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(dir, 0o755) })
	}
	chmod := func(dir string, mode os.FileMode) {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	s := search.New(hostfs.Search{Root: root, Names: []string{".env"}}, "")
	defer s.Close()
	finds := func(want int) {
		t.Helper()
		found, err := s.Find()
		if err != nil || len(found.Files) != want || found.Unseen != 0 {
			t.Errorf("found %+v, %v, want %d files", found, err, want)
		}
	}
	chmod(closed, 0o311)
	chmod(shut, 0)
	want := 1
	if os.Geteuid() == 0 {
		want = 2 // root lists every folder
	}
	finds(want)
	finds(want)
	chmod(shut, 0o755)
	finds(2)
}
