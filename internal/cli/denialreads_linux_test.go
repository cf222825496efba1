package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// flipping opens a name that another thread changes all the time, between a file
// that may be read and one that is hidden, and says how often it read which.
const flipping = `
import ctypes, os, sys, threading
libc = ctypes.CDLL(None)
names = [os.fsencode(n) for n in sys.argv[1:3]]
size = max(map(len, names)) + 1
name = ctypes.create_string_buffer(names[0], size)
stop = False
def flip():
    while not stop:
        for n in names:
            ctypes.memmove(name, n + b"\0", len(n) + 1)
sys.setswitchinterval(1e-6)
threading.Thread(target=flip, daemon=True).start()
seen = {}
for i in range(5000):
    fd = libc.open(name, os.O_RDONLY)
    if fd >= 0:
        text = os.read(fd, 100).decode().strip()
        os.close(fd)
        seen[text] = seen.get(text, 0) + 1
stop = True
print(seen)
`

// N1: a name that is changed while the broker looks at it gains nothing: the mask
// is the kernel's.
func TestNamesThatChangeGainNothing(t *testing.T) {
	testenv.Need(t, "bwrap", "userns", "landlock", "sh", "python3")
	testenv.AlsoAsUser(t)
	for _, backend := range []string{"native", "bwrap"} {
		t.Run(backend, func(t *testing.T) {
			w := newDeniedWorld(t, backend)
			if err := os.WriteFile(w.out+"/secret", []byte("SECRET\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(w.workspace, "flip.py")
			if err := os.WriteFile(program, []byte(flipping), 0o600); err != nil {
				t.Fatal(err)
			}
			readsBothOutside(t, program, w.out+"/file", w.out+"/secret")
			status, report := w.run(t, "", "python3 flip.py OUT/file OUT/secret > seen")
			seen, err := os.ReadFile(filepath.Join(w.workspace, "seen"))
			if status != 0 || err != nil || strings.Contains(string(seen), "SECRET") || !strings.Contains(string(seen), "text") {
				t.Errorf("status %d, inside it reads %s: %v\n%s", status, seen, err, report.text)
			}
			if report.find(plan.OpRead, w.out+"/secret") == nil {
				t.Errorf("the attempts are not on record: %s", report.text)
			}
		})
	}
}

// readsBothOutside is the control: without a sandbox the program reads the one and the
// other. In one go a busy machine may give the second thread no turn.
func readsBothOutside(t *testing.T, program, file, secret string) {
	t.Helper()
	var seen []byte
	for range 5 {
		var err error
		if seen, err = exec.Command("python3", program, file, secret).Output(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(seen), "SECRET") && strings.Contains(string(seen), "text") {
			return
		}
	}
	t.Fatalf("outside it reads %s", seen)
}

// N1: what is not there outside either, or could not be read there, is blamed on
// no rule.
func TestNothingIsBlamedWithoutReason(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "sh")
	testenv.AlsoAsUser(t)
	w := newDeniedWorld(t, "native")
	if err := os.WriteFile(w.out+"/closed/unreadable", nil, 0); err != nil {
		t.Fatal(err)
	}
	_, report := w.run(t, "", `cat OUT/closed/none OUT/none OUT/closed/unreadable OUT/closed/none/deeper OUT/file; mkdir OUT/closed/none/new; rm OUT/closed/none`)
	for _, d := range report.Result.Denied {
		if os.Geteuid() != 0 || d.Path != w.out+"/closed/unreadable" { // root can read it
			t.Errorf("on record: %s", d.String())
		}
	}
}

// N1: which reads are recorded, for each setting.
func TestWhichReadsAreOnRecord(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "sh")
	scripts := map[string]struct{ script, path, first string }{
		"plain":         {`cat OUT/secret`, "OUT/secret", "usual"},
		"a folder":      {`ls OUT/closed`, "OUT/closed", "thorough"},
		"a link at end": {`ln -s OUT/secret l; cat l`, "OUT/secret", "thorough"},
	}
	for name, s := range scripts {
		for _, choice := range []string{"changes", "usual", "thorough"} {
			t.Run(name+"/"+choice, func(t *testing.T) {
				t.Parallel()
				w := newDeniedWorld(t, "native")
				_, report := w.run(t, "--denials "+choice, s.script)
				seen := report.find(plan.OpRead, w.at(s.path)) != nil
				if want := choice == "thorough" || choice == s.first; seen != want {
					t.Errorf("on record %v, want %v: %s", seen, want, report.text)
				}
			})
		}
	}
}
