package apitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/policy"
)

// N15: a workspace that somebody has replaced by a link since its path was found is not followed, in no kind of session.
func TestRealWorkspace(t *testing.T) {
	dir := workspace(t)
	project, other := filepath.Join(dir, "project"), filepath.Join(dir, "other")
	for _, d := range []string{project, other} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for mode, opts := range map[string][]cloche.Option{"cold": nil, "warm": {cloche.WithWarm()}} {
		s := open(t, policy.Workspace(project), project, append(opts, cloche.WithRealWorkspace(project), cloche.WithDeferredPlan())...)
		if r := capture(t, s, "echo in"); string(r.Stdout) != "in\n" {
			t.Fatalf("%s: %s", mode, brief(r))
		}
		if err := os.Rename(project, project+"2"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(other, project); err != nil {
			t.Fatal(err)
		}
		_, err := s.Command(t.Context(), "/bin/sh", "-c", "echo x >planted").Capture()
		if _, statErr := os.Lstat(other + "/planted"); statErr == nil || err == nil || !strings.Contains(err.Error(), "was replaced by a link") {
			t.Errorf("%s: %v", mode, err)
		}
		if err := os.Remove(project); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(project+"2", project); err != nil {
			t.Fatal(err)
		}
	}
}
