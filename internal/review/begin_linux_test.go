package review

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A review is continued, locked, and gets roots that it did not have.
func TestBegin(t *testing.T) {
	dir := t.TempDir()
	ws, other, file := dir+"/ws", dir+"/other", dir+"/file"
	must(t, os.MkdirAll(ws+"/sub", 0o750))
	must(t, os.Mkdir(other, 0o755))
	must(t, os.WriteFile(file, []byte("content"), 0o640))
	s := Open(dir + "/state/review")
	r, err := s.Begin(ws, "one", []string{ws, ws + "/sub"})
	must(t, err)
	if _, err := s.Begin(ws, "one", []string{ws}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second command: %v, want ErrInUse", err)
	}
	two, err := s.Begin(ws, "two", []string{ws})
	must(t, err)
	must(t, two.Close())
	if n := len(r.Layers()); n != 1 {
		t.Fatalf("%d layers, want one for the workspace and what lies in it", n)
	}
	l := r.Layers()[0]
	if info, err := os.Stat(l.Upper); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the upper folder: %v, %v; want the mode of the root", info, err)
	}
	must(t, os.WriteFile(l.Upper+"/kept", nil, 0o600))
	must(t, r.Close())

	r, err = s.Begin(ws, "one", []string{ws, other, file})
	must(t, err)
	layers := r.Layers()
	if len(layers) != 3 || layers[0] != l || layers[1].IsFile() || !layers[2].IsFile() {
		t.Fatalf("layers %v", layers)
	}
	if _, err := os.Stat(l.Upper + "/kept"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(layers[2].Upper); err != nil || string(text) != "content" {
		t.Errorf("the copy: %q, %v", text, err)
	}
	must(t, r.Close())

	// Overlayfs must not get another folder below the old changes.
	must(t, os.Rename(other, other+".away"))
	must(t, os.Mkdir(other, 0o755))
	wrong, isRoot := error(nil), (*RootError)(nil)
	if _, wrong = s.Begin(ws, "one", []string{ws}); !errors.As(wrong, &isRoot) || isRoot.Root != other {
		t.Errorf("with a replaced root: %v", wrong)
	}
	if _, err := s.Begin(dir, "deep", []string{ws}); err != nil {
		t.Error(err)
	}
	if _, err := s.Begin(dir, "up/../../x", []string{ws}); err == nil {
		t.Error("a name with slashes was taken")
	}
	if found, _ := filepath.Glob(dir + "/state/*"); len(found) != 1 {
		t.Errorf("the store left %v", found)
	}
}
