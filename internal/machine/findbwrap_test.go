//go:build unix

package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
)

// program writes an executable file and returns its real path.
func program(t *testing.T, mode os.FileMode, elem ...string) string {
	t.Helper()
	file := filepath.Join(elem...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func realTemp(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// F2: a program is never taken from where a command could have put it.
func TestFindProgram(t *testing.T) {
	tmp := realTemp(t)
	work := filepath.Join(tmp, "work")
	good := program(t, 0o755, tmp, "good", "bwrap")
	inside := program(t, 0o755, work, "bin", "bwrap")
	program(t, 0o644, tmp, "plain", "bwrap")
	program(t, 0o777, tmp, "loose", "bwrap")
	program(t, 0o755, tmp, "open", "bwrap")
	if err := os.Chmod(filepath.Join(tmp, "open"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(tmp, "folder", "bwrap"), 0o755); err != nil {
		t.Fatal(err)
	}
	links := map[string]string{
		"to-good":   filepath.Join(tmp, "good"),
		"to-inside": filepath.Join(work, "bin"),
		"work-link": work,
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(tmp, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(tmp, "file-link"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(inside, filepath.Join(tmp, "file-link", "bwrap")); err != nil {
		t.Fatal(err)
	}

	in := func(name string) string { return filepath.Join(tmp, name) }
	tests := []struct {
		name      string
		workspace string
		folders   []string
		want      string
	}{
		{"plain", work, []string{in("good")}, good},
		{"first wins", "", []string{filepath.Join(work, "bin"), in("good")}, inside},
		{"in the workspace", work, []string{filepath.Join(work, "bin"), in("good")}, good},
		{"through a linked folder", work, []string{in("to-inside"), in("good")}, good},
		{"through a linked file", work, []string{in("file-link"), in("good")}, good},
		{"workspace named by a link", in("work-link"), []string{filepath.Join(work, "bin"), in("work-link/bin")}, ""},
		{"link outside resolved", work, []string{in("to-good")}, good},
		{"relative and empty", work, []string{"good", "", ".", "./good"}, ""},
		{"not executable", work, []string{in("plain")}, ""},
		{"a folder", work, []string{in("folder")}, ""},
		{"workspace is the root", "/", []string{in("good")}, good},
		{"dots", work, []string{in("good/../work/bin")}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(tmp)
			// Temporary folders are never root's alone; that is judged below.
			trusted := func(p string) bool {
				return tt.workspace == "" || tt.workspace == "/" || !strings.HasPrefix(p, work+"/")
			}
			s := programSearch{uid: os.Getuid(), avoid: avoided(tt.workspace), trusted: trusted}
			if got := s.find("bwrap", tt.folders); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

// A program that a command may have left behind, in any folder and at any time,
// is not run unconfined.
func TestOnlyRootsPrograms(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "bwrap")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := (programSearch{uid: os.Getuid(), trusted: rootOwned}).find("bwrap", []string{dir}); got != "" {
		t.Errorf("found %q in a folder that others can write", got)
	}
}

// A system folder as the working folder does not hide its programs from who
// cannot change them.
func TestImmutableProgram(t *testing.T) {
	real, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Skip(err)
	}
	fi, err := os.Stat(real)
	if err != nil || hostfs.Owner(fi) != 0 {
		t.Skip("the system's files do not belong to root here")
	}
	dir := filepath.Dir(real)
	ordinary := programSearch{uid: 1000, avoid: avoided(dir), trusted: rootOwned}
	if !rootOwned(real) {
		t.Skipf("%s can be changed by others here", real)
	}
	if got := ordinary.find(filepath.Base(real), []string{dir}); got != real {
		t.Errorf("found %q, want %q", got, real)
	}
	root := programSearch{uid: 0, avoid: avoided(dir), trusted: rootOwned}
	if got := root.find(filepath.Base(real), []string{dir}); got != "" {
		t.Errorf("root found %q in a workspace that it can write", got)
	}
}
