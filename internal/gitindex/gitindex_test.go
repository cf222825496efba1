package gitindex_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cloche-dev/cloche/internal/gitindex"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// repository makes one with a few files, and returns its folder.
func repository(t *testing.T, init ...string) string {
	t.Helper()
	testenv.Need(t, "git")
	dir := t.TempDir()
	git(t, dir, append([]string{"init", "-q"}, init...)...)
	for name, text := range map[string]string{".env": "A=1\n", "a/b/.env": "B=2\n", "a/b/.env.local": "", "a/notes": "n", "z.env": "A=1\n"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "add", ".env", "a/b/.env", "a/b/.env.local", "a/notes")
	return dir
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	c := exec.Command("git", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

func all([]byte) bool { return true }

func read(t *testing.T, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(dir + "/.git/index")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// N8: what git tracks is known by path and content, in every version of an index.
func TestHas(t *testing.T) {
	for name, init := range map[string][]string{"sha1": nil, "sha256": {"--object-format=sha256"}} {
		for _, version := range []string{"2", "3", "4"} {
			t.Run(name+"/"+version, func(t *testing.T) {
				dir := repository(t, init...)
				git(t, dir, "update-index", "--index-version", version)
				if version == "3" { // which git writes only with such an entry
					git(t, dir, "update-index", "--skip-worktree", "a/notes")
				}
				x, err := gitindex.Parse(read(t, dir), all)
				if err != nil {
					t.Fatal(err)
				}
				for _, tt := range []struct {
					path, text string
					want       bool
				}{
					{".env", "A=1\n", true}, {".env", "A=2\n", false}, {"a/b/.env", "B=2\n", true}, {"a/b/.env", "A=1\n", false},
					{"a/b/.env.local", "", true}, {"z.env", "A=1\n", false}, {"a/b", "", false},
				} {
					if got := x.Has(tt.path, []byte(tt.text)); got != tt.want {
						t.Errorf("%s with %q: %v", tt.path, tt.text, got)
					}
				}
			})
		}
	}
}

// A list that is not the whole truth is none.
func TestNotUnderstood(t *testing.T) {
	dir := repository(t)
	good := read(t, dir)
	git(t, dir, "update-index", "--split-index")
	if _, err := gitindex.Parse(read(t, dir), all); err == nil {
		t.Error("a split index is read")
	}
	for i := range good {
		// Whatever a file holds, reading it ends, and invents nothing.
		bad := bytes.Clone(good)
		bad[i] ^= 0xff
		if x, err := gitindex.Parse(bad, all); err == nil && x.Has("z.env", []byte("A=1\n")) {
			t.Errorf("byte %d changed: an untracked file is tracked", i)
		}
		if x, err := gitindex.Parse(good[:i], all); err == nil {
			t.Errorf("the first %d bytes are read as %v", i, x)
		}
	}
}

// N8: a file that is listed twice, as during a merge, is not tracked.
func TestConflict(t *testing.T) {
	dir := repository(t)
	c := exec.Command("git", "update-index", "--index-info")
	c.Dir = dir
	const sum = "d00491fd7e5bb6fa28c517a0bb32b8b506539d4d"
	c.Stdin = bytes.NewReader([]byte("0 0000000000000000000000000000000000000000\t.env\n100644 " + sum + " 1\t.env\n100644 " + sum + " 2\t.env\n"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	x, err := gitindex.Parse(read(t, dir), all)
	if err != nil || x.Has(".env", []byte("1\n")) {
		t.Errorf("%v, %v", x, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01"))
	f.Add(append([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01"), make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		if x, err := gitindex.Parse(data, all); err == nil && x.Has("never", nil) && !bytes.Contains(data, []byte("never")) {
			t.Error("a path that is not there is tracked")
		}
	})
}
