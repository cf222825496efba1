package search_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/search"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// N8: what git tracks is followed from search to search: staged, changed, removed
// from the index; in a repository around the folder, in a worktree, by a link.
func TestTracked(t *testing.T) {
	testenv.Need(t, "git")
	base := t.TempDir()
	repo, tree := base+"/repo", base+"/tree"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(file, text string) {
		t.Helper()
		must(os.MkdirAll(filepath.Dir(file), 0o755))
		must(os.WriteFile(file, []byte(text), 0o644))
	}
	git := func(dir string, args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@t"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	searchers := map[string]*search.Searcher{}
	tracked := func(root string, want ...bool) {
		t.Helper()
		if searchers[root] == nil {
			searchers[root] = search.New(hostfs.Search{Root: root, Names: []string{".env"}}, "")
		}
		found, err := searchers[root].Find()
		must(err)
		var got []bool
		for _, f := range found.Files {
			got = append(got, f.Tracked)
		}
		if len(got) != len(want) {
			t.Fatalf("found %+v", found.Files)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: tracked is %v, want %v", found.Files[i].Path, got[i], want[i])
			}
		}
	}
	write(repo+"/sub/.env", "A=1\n")
	write(repo+"/sub/deep/values", "B=2\n")
	must(os.Symlink("values", repo+"/sub/deep/.env"))
	tracked(repo, false, false) // there is no repository yet
	git(repo, "init", "-q")
	tracked(repo, false, false)
	git(repo, "add", "sub/.env")
	tracked(repo, true, false)
	git(repo, "add", "-A")
	tracked(repo, true, true)
	tracked(repo+"/sub", true, true)
	write(repo+"/sub/.env", "A=changed\n")
	tracked(repo, false, true)
	write(repo+"/sub/.env", "A=1\n")
	git(repo, "commit", "-qm", "x")
	git(repo, "worktree", "add", "-q", tree)
	tracked(tree, true, true)
	git(repo, "rm", "-q", "--cached", "sub/.env")
	tracked(repo, false, true)
	tracked(tree, true, true)
	write(repo+"/.git/index", "no index")
	tracked(repo, false, false)
}
