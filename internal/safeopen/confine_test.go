package safeopen

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// tree makes a root with neighbours and links of every sort, and returns its
// real path.
func tree(t testing.TB) string {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"root/sub/deep", "root2", "outside/in"} {
		must(t, os.MkdirAll(filepath.Join(base, d), 0o755))
	}
	for _, f := range []string{"root/file", "root/sub/file", "outside/secret", "root2/file"} {
		must(t, os.WriteFile(filepath.Join(base, f), []byte("content of "+f), 0o644))
	}
	for name, target := range map[string]string{
		"tosub": "sub", "todeep": "sub/deep", "tofile": "sub/file",
		"absin": filepath.Join(base, "root/sub"), "out": "../outside", "absout": filepath.Join(base, "outside"),
		"outfile": "../outside/secret", "sibling": "../root2", "dangling": "sub/new", "dangleout": "../outside/new",
		"dangledeep": "../outside/no/such", "loop": "loop", "loopa": "loopb", "loopb": "loopa",
		"backin": "../root/sub", "totop": "..", "sub/up": "..", "chain": "tosub/up/tosub",
		"slash": "sub/", "toroot": "/",
	} {
		must(t, os.Symlink(target, filepath.Join(base, "root", name)))
	}
	return filepath.Join(base, "root")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// W6: what stays inside, by the path it resolves to.
func TestConfineInside(t *testing.T) {
	root := tree(t)
	for candidate, want := range map[string]string{
		".": "", "file": "file", "./sub//file": "sub/file", "sub/..": "", "sub/../file": "file",
		"tosub": "sub", "tosub/file": "sub/file", "tofile": "sub/file", "absin/deep": "sub/deep",
		"todeep/..": "sub", "todeep/../file": "sub/file", "chain/deep": "sub/deep", "slash/file": "sub/file",
		"new": "new", "new/dir/file": "new/dir/file", "tosub/new": "sub/new", "new/../other": "other",
		"new/../sub/file": "sub/file", "new/dir/../../file": "file",
		"dangling": "sub/new", "dangling/x": "sub/new/x", "backin/file": "sub/file", "../root/file": "file",
		"out/../root/file": "file", "sub/": "sub", "..x": "..x",
	} {
		got, err := Confine(root, candidate)
		if err != nil || got != filepath.Join(root, want) {
			t.Errorf("Confine(%q) = %q, %v; want %q", candidate, got, err, want)
		}
		abs, err := Confine(root, root+"/"+candidate)
		if err != nil || abs != got {
			t.Errorf("Confine(absolute %q) = %q, %v; want %q", candidate, abs, err, got)
		}
	}
}

// W6: what leads out, with the place it leads to.
func TestConfineEscapes(t *testing.T) {
	root := tree(t)
	base := filepath.Dir(root)
	for candidate, want := range map[string]string{
		"..": "", "../outside/secret": "outside/secret", "sub/../../outside": "outside",
		"out": "outside", "out/secret": "outside/secret", "out/new": "outside/new", "absout/in/x": "outside/in/x",
		"outfile": "outside/secret", "sibling/file": "root2/file", "../root2": "root2",
		"dangleout": "outside/new", "dangledeep": "outside/no/such", "totop/root2/file": "root2/file",
		"tosub/up/../outside": "outside", "new/../../outside/x": "outside/x", "out/in/..": "outside",
		root + "2/file": "root2/file", base + "/outside": "outside",
	} {
		got, err := Confine(root, candidate)
		var esc *EscapeError
		if !errors.As(err, &esc) || esc.Resolved != filepath.Join(base, want) || esc.Root != root || esc.Candidate != candidate {
			t.Errorf("Confine(%q) = %q, %v; want an escape to %q", candidate, got, err, want)
		}
		if got != "" || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("Confine(%q) = %q, %v; want no path and ErrPermission", candidate, got, err)
		}
	}
}

// W6: links resolve before "..", so the text alone would answer wrongly.
func TestConfineIsNotLexical(t *testing.T) {
	root := tree(t)
	if got, err := Confine(root, "todeep/.."); err != nil || got == root {
		t.Errorf("todeep/.. = %q, %v: resolved by its text", got, err)
	}
	if _, err := Confine(root, "out/../root2/file"); err == nil {
		t.Error("out/../root2 counts as inside")
	}
}

// W6
func TestConfineErrors(t *testing.T) {
	root := tree(t)
	for candidate, want := range map[string]error{
		"loop": syscall.ELOOP, "loopa/x": syscall.ELOOP, "file/x": syscall.ENOTDIR, "file/..": syscall.ENOTDIR,
		"": fs.ErrNotExist, "a\x00b": syscall.EINVAL, strings.Repeat("n", 300): syscall.ENAMETOOLONG,
	} {
		if got, err := Confine(root, candidate); !errors.Is(err, want) {
			t.Errorf("Confine(%q) = %q, %v; want %v", candidate, got, err, want)
		}
	}
	if _, err := Confine(filepath.Join(root, "missing"), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing root: %v", err)
	}
	if _, err := Confine(filepath.Join(root, "file"), "x"); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("root is a file: %v", err)
	}
}

// W6: a root that is a link, or relative, is resolved first.
func TestConfineRootForms(t *testing.T) {
	root := tree(t)
	want := filepath.Join(root, "sub/file")
	if got, err := Confine(filepath.Join(root, "tosub"), "file"); err != nil || got != want {
		t.Errorf("linked root: %q, %v", got, err)
	}
	t.Chdir(root)
	if got, err := Confine("todeep/..", "file"); err != nil || got != want {
		t.Errorf("relative root: %q, %v", got, err)
	}
	if got, err := Confine("/", root); err != nil || got != root {
		t.Errorf("top as root: %q, %v", got, err)
	}
}

// W6: an unreadable place outside is an escape, not a permission puzzle.
func TestConfineUnreadableOutside(t *testing.T) {
	root := tree(t)
	locked := filepath.Join(filepath.Dir(root), "outside")
	must(t, os.Chmod(locked, 0))
	t.Cleanup(func() { os.Chmod(locked, 0o755) })
	var esc *EscapeError
	if _, err := Confine(root, "out/in/x"); !errors.As(err, &esc) {
		t.Errorf("got %v", err)
	}
}

// FuzzConfine: whatever the candidate, an answer is inside, exists up to its
// missing part, and holds no link.
func FuzzConfine(f *testing.F) {
	for _, s := range []string{"a/../b", "out/..", "todeep/../../..", "dangling/../x", "/etc/passwd", "new/../../", "loop", "\x00"} {
		f.Add(s)
	}
	root := tree(f)
	f.Fuzz(func(t *testing.T, candidate string) {
		got, err := Confine(root, candidate)
		if err != nil {
			return
		}
		if got != root && !strings.HasPrefix(got, root+"/") || filepath.Clean(got) != got {
			t.Fatalf("Confine(%q) = %q", candidate, got)
		}
		if again, err := Confine(root, got); err != nil || again != got {
			t.Fatalf("Confine(%q) = %q, but that leads to %q, %v", candidate, got, again, err)
		}
	})
}
