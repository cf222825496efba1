package cli

import (
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
	for _, backend := range []string{"native", "bwrap"} {
		w := newDeniedWorld(t, backend)
		if status, report := w.run(t, hide, "[ -x "+self+" ]"); status == 0 {
			t.Errorf("%s: it is shown without a rule: %s", backend, report.stderr)
		}
		if status, report := w.run(t, hide+" --ro urn:cloche:self", "[ -x "+self+" ]"); status != 0 {
			t.Errorf("%s: status %d: %s", backend, status, report.stderr)
		}
	}
}
