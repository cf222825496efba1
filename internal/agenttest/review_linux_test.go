package agenttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// N5 N15: what an agent does in a review is kept aside: in the project, and in its own folders. A second start continues there.
func TestAgentInReview(t *testing.T) {
	for _, name := range []string{"claude", "codex"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forUser(t, true)
			b := newBox(t, name, commands("echo in > in-project && echo wrote", "cat in-project")...)
			before := files(t, b.home)
			r := b.inside(t, "--review")
			if r.status != 0 || !r.report.Confined {
				t.Errorf("exit status %d, confined %v, printed:\n%s%s", r.status, r.report.Confined, r.stdout, r.stderr)
			}
			if !strings.Contains(r.stderr, "cloche review shows it") {
				t.Errorf("it does not say where the changes are: %s", r.stderr)
			}
			if _, err := os.Lstat(filepath.Join(b.ws, "in-project")); err == nil {
				t.Error("the host has the file")
			}
			if now := files(t, b.home); now != before {
				t.Errorf("the home folder has now\n%s\nand had\n%s", now, before)
			}
			if list := b.cloche(t, 0, "review"); !strings.Contains(list, "in-project") {
				t.Errorf("the review:\n%s", list)
			}
			b.cloche(t, 0, "review", "apply", "in-project")
			if text, err := os.ReadFile(filepath.Join(b.ws, "in-project")); err != nil || string(text) != "in\n" {
				t.Errorf("after the apply: %q, %v", text, err)
			}
			b.cloche(t, 0, "review", "discard")
		})
	}
}

// files are the names of the files below a folder, without cloche's own.
func files(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && e.Name() == "cloche" {
			return filepath.SkipDir
		}
		if !e.IsDir() {
			b.WriteString(path + "\n")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
