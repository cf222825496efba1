package native_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/native"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// A11: where parts of /proc are covered, as in containers, the kernel refuses a new one. The probe
// says so, and what to do.
func TestProbeCoveredProc(t *testing.T) {
	testenv.Need(t, "userns", "unshare", "mount")
	const covered = "/proc/version"
	if os.Getenv("CLOCHE_TEST_COVERED") != "" {
		s, err := machine.Collect("/")
		if err != nil {
			t.Fatal(err)
		}
		if p := native.Probe(t.Context(), s); p.Outcome != host.No || p.Cause != cause.Mount || !strings.Contains(p.Reason, covered) || p.Fix == "" {
			t.Errorf("got %+v", p)
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "-Urm", "sh", "-c", "mount --bind /dev/null "+covered+` && exec "$0" -test.run='^TestProbeCoveredProc$'`, self)
	cmd.Env = append(os.Environ(), "CLOCHE_TEST_COVERED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
