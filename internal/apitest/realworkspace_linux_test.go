package apitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// N1: what was denied is reported although no plan could be made for a while, because the workspace was gone. Later one is made.
func TestDeniedWithoutPlan(t *testing.T) {
	for mode, opts := range map[string][]cloche.Option{"cold": nil, "warm": {cloche.WithWarm()}} {
		project := filepath.Join(workspace(t), "project")
		if err := os.Mkdir(project, 0o700); err != nil {
			t.Fatal(err)
		}
		s := open(t, policy.Workspace(project), project, append(opts, cloche.WithDeferredPlan())...)
		cmd := s.Command(t.Context(), "/bin/sh", "-c", "cat; echo x >/etc/cloche-beside")
		in, end, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = in
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(project, project+"2"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Explain(); err == nil {
			t.Errorf("%s: there is a plan for a workspace that is gone", mode)
		}
		text := cmd.DeniedFirst(time.Now())
		if err := os.Rename(project+"2", project); err != nil {
			t.Fatal(err)
		}
		end.Close()
		if err := cmd.Wait(); err == nil {
			t.Errorf("%s: the command did not fail", mode)
		}
		in.Close()
		if len(text) != 0 {
			t.Errorf("%s: at first: %q", mode, text)
		}
		if _, err := s.Explain(); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if text := cmd.Result().DeniedText(); !strings.Contains(text, "/etc/cloche-beside") {
			t.Errorf("%s: %q", mode, text)
		}
	}
}
