package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// L6: the server is never one that a confined command could have put there.
func TestFindServer(t *testing.T) {
	put := func(dir string) string {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, serverName)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws, cache, good := filepath.Join(dir, "ws"), filepath.Join(dir, "cache"), filepath.Join(dir, "good")
	inWorkspace, inCache, outside := put(filepath.Join(ws, "node_modules/.bin")), put(cache), put(good)
	byLink := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Dir(inWorkspace), byLink); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	put(open)
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Chdir(ws)
	for _, bad := range []string{filepath.Dir(inWorkspace), filepath.Dir(inCache), byLink, "node_modules/.bin", ".", open} {
		t.Setenv("PATH", bad)
		if got, err := findProgram(serverName, []string{ws, cache}); err == nil {
			t.Errorf("with %s in PATH: %s", bad, got)
		} else if filepath.IsAbs(bad) && !strings.Contains(err.Error(), "can be changed by") {
			t.Errorf("with %s in PATH: %v", bad, err)
		}
		t.Setenv("PATH", bad+":"+good)
		if got, err := findProgram(serverName, []string{ws, cache}); err != nil || got != outside {
			t.Errorf("with %s and %s in PATH: %s, %v", bad, good, got, err)
		}
	}
}
