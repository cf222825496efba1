package machine

import (
	"os"
	"path/filepath"
	"testing"
)

// L5 A9: helpers that run unconfined are taken from where only root can write.
func TestFindHelper(t *testing.T) {
	found := FindProgram("sh")
	if real, err := filepath.EvalSymlinks("/bin/sh"); err != nil || found == "" || !filepath.IsAbs(found) || filepath.Base(found) != filepath.Base(real) {
		t.Errorf("sh is found at %q; /bin/sh leads to %q, %v", found, real, err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cloche-helper"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":.")
	if got := FindProgram("cloche-helper"); got != "" {
		t.Errorf("taken from a folder that others can write: %q", got)
	}
	if got := FindProgram("cloche-no-such-helper"); got != "" {
		t.Errorf("found %q", got)
	}
	if os.Getuid() == 0 {
		if got := FindProgram("sh", "/usr", "/bin"); got != "" {
			t.Errorf("root takes %q from a folder to be avoided", got)
		}
	}
}
