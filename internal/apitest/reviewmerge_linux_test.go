package apitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// N5: while a command runs, copies are kept of the host's files that it changes. A change of the host after that is merged, also if
// cloche was killed.
func TestReviewMergesChangesDuringTheRun(t *testing.T) {
	_, dir := reviewed(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, clocheWord, "run", "--workspace", dir, "--backend", "native", "--review", "--", "sh", "-c", "seq 9 > x; echo mine >> a; sleep 1000")
	c.Dir, c.Stderr = dir, os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	originals := filepath.Join(os.Getenv("XDG_STATE_HOME"), "cloche/review/*/originals")
	testenv.Eventually(t, "the host's file is kept while the command runs", func() bool {
		names, _ := filepath.Glob(originals + "/*")
		return len(names) == 1 && filepath.Base(names[0]) != "new"
	})
	shellOutside(t, dir, `sed -i '1s/^/theirs\n/' a; echo theirs >> b`)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	review := func(args ...string) (string, error) {
		c := exec.Command(self, append([]string{clocheWord, "review"}, args...)...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		return string(out), err
	}
	// The killed command may take a moment to end.
	testenv.Eventually(t, "the review is free", func() bool {
		out, err := review()
		return err == nil && !strings.Contains(out, "still runs")
	})
	if out, err := review("apply", "--merge"); err != nil || !strings.Contains(out, "applied 2 changes") {
		t.Errorf("the apply: %v: %s", err, out)
	}
	if got := shellOutside(t, dir, "cat a b"); got != "theirs\none\nmine\ntwo\ntheirs\n" {
		t.Errorf("merged: %q", got)
	}
}
