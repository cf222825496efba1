package cloche

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/host"
)

// N9: while a command runs, the folders that its start did not wait for are looked
// at, so that the next search knows what is new in them; the end of the command or
// of the session ends that.
func TestRenewBeside(t *testing.T) {
	root, cache := t.TempDir(), t.TempDir()
	if err := os.Chmod(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 1500 {
		if err := os.MkdirAll(filepath.Join(root, fmt.Sprintf("a%02d/b%04d/c", i%30, i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond) // so that the folders are settled
	search := host.Search{Root: root, Names: []string{".env"}}
	find := func() *host.Found {
		s := host.NewSearcher(search, cache)
		found, err := s.Find()
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	find()
	if err := os.WriteFile(root+"/a29/b1499/c/.env", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if found := find(); len(found.Files) != 0 || found.Later == 0 {
		t.Fatalf("the test needs a file that is not found at once: %+v", found)
	}
	age := -time.Hour
	f := &foundFiles{searchers: []*host.Searcher{host.NewSearcher(search, cache)}, age: &age}
	if _, err := f.searchers[0].Find(); err != nil {
		t.Fatal(err)
	}
	short := make(chan struct{})
	close(short)
	f.renewBeside(short)
	time.Sleep(2 * renewDelay)
	f.renewals.Wait()
	if found := find(); len(found.Files) != 0 {
		t.Errorf("a command that had ended was worked beside: %+v", found)
	}
	long := make(chan struct{})
	f.renewBeside(long)
	for range 600 {
		if found := find(); len(found.Files) == 1 && found.Files[0].Path == "a29/b1499/c/.env" {
			f.close()
			f.renewBeside(long) // of a session that is closed: nothing begins
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("not found: %v", slices.Clone(find().Files))
}
