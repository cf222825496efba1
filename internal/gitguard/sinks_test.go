package gitguard

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// N8
func TestSinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links need a privilege on Windows")
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, ".git")
	files := map[string]string{
		".git/config":        "[core]\n\thooksPath = .githooks\n\tfsmonitor = scripts/watch --fast\n\tpager = less\n[include]\n\tpath = ../extra.cfg\n[remote \"o\"]\n\turl = ./upstream\n",
		"extra.cfg":          "[alias]\n\tx = \"!./tools/x arg\"\n\ty = !./missing\n[include]\n\tpath = more.cfg\n",
		"more.cfg":           "[include]\n\tpath = extra.cfg\n",
		"scripts/watch":      "",
		"scripts/pre-commit": "",
		"tools/x":            "",
		".git/hooks/update":  "",
	}
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../scripts/pre-commit", filepath.Join(dir, "hooks", "pre-commit")); err != nil {
		t.Fatal(err)
	}
	found, err := Sinks(root, []string{"GIT_CONFIG_NOSYSTEM=1"})
	if err != nil {
		t.Fatal(err)
	}
	got := found.Paths
	slices.Sort(got)
	var want []string
	for _, name := range []string{".githooks", "extra.cfg", "missing", "more.cfg", "scripts/pre-commit", "scripts/watch", "tools/x"} {
		want = append(want, filepath.Join(root, name))
	}
	if !slices.Equal(got, want) {
		t.Errorf("Sinks = %q, want %q", got, want)
	}
}

func TestSinksOfNothing(t *testing.T) {
	if got, err := Sinks(t.TempDir(), []string{"GIT_CONFIG_NOSYSTEM=1"}); err != nil || len(got.Paths)+len(got.Anywhere) != 0 {
		t.Errorf("Sinks of an empty directory = %v, %v", got, err)
	}
}

// Agents start their commands without the user's settings. A git that runs outside has them. N8
func TestSinksOfUser(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no /dev/null on Windows")
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, ws := filepath.Join(root, "home"), filepath.Join(root, "ws")
	for _, dir := range []string{home, filepath.Join(ws, ".git")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	hooks := filepath.Join(ws, "hooks")
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[core]\n\thooksPath = "+hooks+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	found, err := Sinks(ws, []string{"HOME=" + home, "GIT_CONFIG_SYSTEM=" + os.DevNull, "GIT_CONFIG_GLOBAL=" + os.DevNull})
	if err != nil || !slices.Contains(found.Paths, hooks) {
		t.Errorf("Sinks = %q, %v; want %s among them", found.Paths, err, hooks)
	}
}

// A file that cannot be read as git reads it is reported, not passed over.
func TestSinksOfUnreadableSettings(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".git/config"), []byte("[core"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Sinks(dir, nil); err == nil {
		t.Error("no error for settings with a mistake")
	}
}
