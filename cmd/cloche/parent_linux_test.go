package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// F12: with --die-with-parent, SIGKILL of the program that started cloche ends the
// command, its end is recorded, and nothing is left. Without it the command goes on.
func TestParentIsKilled(t *testing.T) {
	t.Parallel() // it mostly waits
	testenv.Need(t, "bwrap", "userns", "landlock")
	testenv.AlsoAsUser(t)
	for _, backend := range []string{"native", "bwrap", "landlock"} {
		t.Run(backend, func(t *testing.T) {
			v := newVictim(t)
			mark := fmt.Sprintf("1000.%09d", rand.IntN(1e9))
			v.killParent(t, "trap '' TERM HUP INT; (setsid sleep "+mark+" &); : >ready; sleep "+mark, "--backend", backend, "--best-effort", "--die-with-parent")
			if left := gone(mark); len(left) > 0 {
				t.Fatalf("processes are left: %q", left)
			}
			if log := v.log(t); !strings.Contains(log, `"canceled":true`) {
				t.Errorf("the log has no end: %s", log)
			}
		})
	}
	t.Run("without", func(t *testing.T) {
		v := newVictim(t)
		v.killParent(t, ": >ready; until [ -e go ]; do sleep 0.05; done; : >done")
		if err := os.WriteFile(v.ws+"/go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		awaitFile(t, v.ws+"/done")
	})
}

// killParent starts cloche by another program, and kills that once the command runs.
func (v victim) killParent(t *testing.T, script string, flags ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The shell waits for cloche and does not become it.
	args := slices.Concat([]string{"-c", `"$@"; exit 0`, "sh", self, "run", "--workspace", v.ws}, flags, []string{"--", "sh", "-c", script})
	parent := exec.Command("sh", args...)
	parent.Env = []string{asCloche + "=1", "HOME=" + v.home, "TMPDIR=" + v.tmp, "PATH=" + os.Getenv("PATH")}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, v.ready)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
}

// log is the audit log.
func (v victim) log(t *testing.T) (text string) {
	t.Helper()
	files, err := filepath.Glob(v.home + "/.local/state/cloche/audit/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text += string(b)
	}
	return text
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	testenv.Eventually(t, path+" is made", func() bool { _, err := os.Stat(path); return err == nil })
}
