package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// F4: cloche itself, in a folder that is hidden, is shown by its name in policies.
func TestOwnProgramByOption(t *testing.T) {
	testenv.Need(t, "bwrap", "userns", "landlock", "sh")
	testenv.AlsoAsUser(t)
	self, err := exec.LookPath("cloche")
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		t.Fatal(err)
	}
	hide := "--hide " + filepath.Dir(self)
	info, err := os.Stat(self)
	if err != nil {
		t.Fatal(err)
	}
	// That it may be executed says little of root. It is the same file, and really runs.
	runs := fmt.Sprintf(`[ "$(stat -c %%s %s)" = %d ] && %s version`, self, info.Size(), self)
	for _, backend := range []string{"native", "bwrap"} {
		w := newDeniedWorld(t, backend)
		if status, report := w.run(t, hide, runs); status == 0 {
			t.Errorf("%s: it is shown without a rule: %s", backend, report.stderr)
		}
		if status, report := w.run(t, hide+" --ro urn:cloche:self", runs); status != 0 {
			t.Errorf("%s: status %d: %s", backend, status, report.stderr)
		}
		if status, report := w.run(t, "--ro urn:cloche:self "+hide+" --ro "+w.out, "ls "+filepath.Dir(self)+" | grep -vx "+filepath.Base(self)); status == 0 {
			t.Errorf("%s: more than it is shown: %s", backend, report.text)
		}
	}
}
