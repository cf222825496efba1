package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// N5: what is known to prevent a review is named with its fix, and only that.
func TestCannotReview(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, store := dir+"/ws", dir+"/state/review"
	if err := os.MkdirAll(root+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		mounts []string
		want   string
	}{
		{[]string{"/", dir, root, root + "2"}, ""},
		{[]string{"/", root + "/sub"}, "mounted in it, at " + root + "/sub"},
	} {
		reason, fix := cannotReview(root, store, tt.mounts)
		if (reason == "") != (tt.want == "") || !strings.Contains(reason, tt.want) || (reason == "") != (fix == "") {
			t.Errorf("mounts %q: %q, %q, want %q", tt.mounts, reason, fix, tt.want)
		}
	}
	if os.Geteuid() != 0 {
		if other := othersEntry("/"); other == "" {
			t.Error("the root folder belongs to this user")
		}
	}
	if got := unescapeMount(`/a\040b\134040`); got != `/a b\040` {
		t.Errorf("a mount point is %q", got)
	}
}
