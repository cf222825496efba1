package treewatch

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
)

// tree makes a small tree and a watch on it, old enough for the times of its
// folders to be trusted.
func tree(t *testing.T) (dir string, w *Watch) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.MkdirAll(dir+"/sub/deep", 0o755))
	must(t, os.WriteFile(dir+"/sub/file", nil, 0o644))
	old := time.Now().Add(-time.Hour)
	for _, d := range []string{dir, dir + "/sub", dir + "/sub/deep"} {
		must(t, os.Chtimes(d, old, old))
	}
	w, changed := New(map[string]host.Kind{
		dir: hostfs.Dir, dir + "/sub": hostfs.Dir, dir + "/sub/file": hostfs.File, dir + "/sub/deep": hostfs.Dir,
		dir + "/missing": hostfs.Missing, dir + "/sub/deep/missing": hostfs.Missing,
	})
	if changed != "" {
		t.Fatalf("%s has changed", changed)
	}
	t.Cleanup(w.Close)
	return dir, w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// N10: each change of where a name leads is noticed, at once, and named.
func TestChanged(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run(map[bool]string{true: "told", false: "looked at"}[told], func(t *testing.T) { testChanges(t, told) })
	}
}

func testChanges(t *testing.T, told bool) {
	for name, change := range map[string]struct {
		do   func(dir string) error
		want string
	}{
		"nothing":             {func(string) error { return nil }, ""},
		"another file beside": {func(dir string) error { return os.WriteFile(dir+"/other", nil, 0o644) }, ""},
		"new content":         {func(dir string) error { return os.WriteFile(dir+"/sub/file", []byte("x"), 0o644) }, ""},
		"removed":             {func(dir string) error { return os.Remove(dir + "/sub/file") }, "/sub/file"},
		"created":             {func(dir string) error { return os.Mkdir(dir+"/missing", 0o755) }, "/missing"},
		"created below":       {func(dir string) error { return os.WriteFile(dir+"/sub/deep/missing", nil, 0o644) }, "/sub/deep/missing"},
		"replaced": {func(dir string) error {
			if err := os.WriteFile(dir+"/new", nil, 0o644); err != nil {
				return err
			}
			return os.Rename(dir+"/new", dir+"/sub/file")
		}, "/sub/file"},
		"folder replaced": {func(dir string) error {
			if err := os.Rename(dir+"/sub", dir+"/away"); err != nil {
				return err
			}
			return os.Mkdir(dir+"/sub", 0o755)
		}, "/sub"},
		"turned into a link": {func(dir string) error {
			if err := os.Rename(dir+"/sub/deep", dir+"/away"); err != nil {
				return err
			}
			return os.Symlink(dir+"/away", dir+"/sub/deep")
		}, "/sub/deep"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, w := tree(t)
			if !told {
				for _, f := range w.folders {
					f.told = false
					f.stamp()
				}
			}
			if got := w.Changed(); got != "" {
				t.Fatalf("%s before anything was done", got)
			}
			must(t, change.do(dir))
			want := change.want
			if want != "" {
				want = filepath.Join(dir, want)
			}
			if got := w.Changed(); got != want {
				t.Errorf("Changed() = %q, want %q", got, want)
			}
		})
	}
}

// N10: a change that comes too soon after the last look to change the folder's
// time is noticed too.
func TestChangedWithinOneTick(t *testing.T) {
	dir := t.TempDir()
	for i := range 200 {
		p := filepath.Join(dir, "file")
		must(t, os.WriteFile(p, nil, 0o644))
		w, changed := New(map[string]host.Kind{p: hostfs.File})
		if changed != "" {
			t.Fatal(changed)
		}
		if i%2 == 0 {
			w.folders[0].told = false
			w.folders[0].stamp()
		}
		must(t, os.Remove(p))
		if w.Changed() != p {
			t.Fatalf("round %d: the removal was missed", i)
		}
		w.Close()
	}
}

// N10: a link that is replaced by one with another target is noticed, also where
// the file system gives the new one the number of the old.
func TestLinkReplaced(t *testing.T) {
	p := filepath.Join(t.TempDir(), "link")
	for range 50 {
		must(t, os.Symlink("one", p))
		w, changed := New(map[string]host.Kind{p: hostfs.Symlink})
		if changed != "" {
			t.Fatal(changed)
		}
		must(t, os.Remove(p))
		must(t, os.Symlink("two", p))
		if w.Changed() != p {
			t.Fatal("the new link was taken for the old")
		}
		w.Close()
		must(t, os.Remove(p))
	}
}

// N10: a file that replaces a removed one is noticed, also where the file system gives it the number of the old: nothing is
// mounted on the new one, which the sandbox would show.
func TestNumberUsedAgain(t *testing.T) {
	p, again := filepath.Join(t.TempDir(), "file"), 0
	for range 20 {
		must(t, os.WriteFile(p, nil, 0o644))
		old, err := os.Stat(p)
		must(t, err)
		w, changed := New(map[string]host.Kind{p: hostfs.File})
		if changed != "" {
			t.Fatal(changed)
		}
		time.Sleep(grain) // the limit: with one number, two files of one tick of the clock are one file
		must(t, os.Remove(p))
		must(t, os.WriteFile(p, nil, 0o644))
		if now, err := os.Stat(p); err == nil && os.SameFile(old, now) {
			again++
		}
		if w.Changed() != p {
			t.Fatal("the new file was taken for the old")
		}
		w.Close()
	}
	t.Logf("%d of 20 files had the number of the one before", again)
}

// A look-up that is out of date when the watch begins is reported.
func TestNewIsTold(t *testing.T) {
	p := filepath.Join(t.TempDir(), "file")
	if _, changed := New(map[string]host.Kind{p: hostfs.File}); changed != p {
		t.Errorf("New found %q, want %q", changed, p)
	}
}
