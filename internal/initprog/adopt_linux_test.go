package initprog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// hasScope: Landlock keeps signals in from ABI 6 on.
func hasScope() bool {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0 && abi >= 6
}

// adopting runs the test with an init that is not pid 1, with Landlock's signal
// scope where the kernel has it, and without.
func adopting(t *testing.T, test func(t *testing.T, c func(script string) Config)) {
	t.Helper()
	for _, scope := range []bool{false, true} {
		t.Run(fmt.Sprintf("scope=%v", scope), func(t *testing.T) {
			if scope && !hasScope() {
				testenv.Need(t, "landlock")
				t.Skip("needs Landlock ABI 6 (Linux 6.12)")
			}
			test(t, func(script string) Config {
				c := shell(script)
				c.Adopt, c.Scope = true, scope
				return c
			})
		})
	}
}

// adopt starts an init in the host's own pid namespace.
func adopt(t *testing.T, c Config) *sandbox {
	t.Helper()
	s := prepare(t, c)
	s.cmd.SysProcAttr = nil
	s.start()
	return s
}

// F12: whatever the command left behind is gone when the init is.
func TestAdoptEndsWhatIsLeft(t *testing.T) {
	adopting(t, func(t *testing.T, config func(string) Config) {
		marker := fmt.Sprint(810000 + os.Getpid())
		s := adopt(t, config("trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; setsid sleep "+marker+" & sleep "+marker+"' &); sleep "+marker+" & sleep 0.1; exit 3"))
		s.record(Started)
		s.record(Exited)
		if code := s.exit(); code != 3 {
			t.Errorf("exit code %d, want 3", code)
		}
		if left := withMarker(marker); left != "" {
			t.Errorf("left: %s", left)
		}
	})
}

// withMarker is the first process that sleeps for the time, at this moment.
func withMarker(marker string) string {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, l := range lines {
		b, _ := os.ReadFile(l)
		if strings.Contains(string(b), "\x00"+marker) {
			return l + " " + strings.ReplaceAll(string(b), "\x00", " ")
		}
	}
	return ""
}

// F12: a supervisor that is killed takes everything with it.
func TestAdoptLifeline(t *testing.T) {
	adopting(t, func(t *testing.T, config func(string) Config) {
		marker := fmt.Sprint(820000 + os.Getpid())
		s := adopt(t, config("trap '' TERM HUP INT; (setsid sleep "+marker+" &); sleep "+marker))
		s.record(Started)
		s.lifeline.Close()
		if code := s.exit(); code != 137 {
			t.Errorf("exit code %d, want 137", code)
		}
		if left := withMarker(marker); left != "" {
			t.Errorf("left: %s", left)
		}
	})
}

// F12: running away, each process starting the next one in a session of its own
// and ending, is no way out. The chain ends by itself after a while.
func TestAdoptEndsAChain(t *testing.T) {
	adopting(t, func(t *testing.T, config func(string) Config) {
		marker := fmt.Sprint(830000 + os.Getpid())
		script := filepath.Join(t.TempDir(), "chain")
		if err := os.WriteFile(script, []byte("[ $1 -gt 0 ] && setsid sh "+script+" $(($1-1)) "+marker+" &\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		s := adopt(t, config("sh "+script+" 3000 "+marker+"; sleep 0.2; exit 4"))
		s.record(Started)
		s.record(Exited)
		if code := s.exit(); code != 4 {
			t.Errorf("exit code %d, want 4", code)
		}
		if left := withMarker(marker); left != "" {
			t.Errorf("left: %s", left)
		}
	})
}

// The command can neither end nor stop the process that outlives it.
func TestAdoptScopeProtectsTheInit(t *testing.T) {
	if !hasScope() {
		testenv.Need(t, "landlock")
		t.Skip("needs Landlock ABI 6 (Linux 6.12)")
	}
	c := shell("kill -KILL $PPID; kill -STOP $PPID; kill -KILL -$PPID; kill -0 $$ || exit 1; exit 5")
	c.Adopt, c.Scope = true, true
	s := adopt(t, c)
	s.record(Started)
	if rec := s.record(Exited); rec.Value != 5<<8 {
		t.Errorf("wait status %#x: %s", rec.Value, s.output())
	}
	if n := strings.Count(s.output(), "Operation not permitted"); n != 3 {
		t.Errorf("%d of 3 signals were refused: %s", n, s.output())
	}
	if code := s.exit(); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
}

// The end of one run touches no other process of the user, not even in the same
// session.
func TestAdoptSparesOthers(t *testing.T) {
	adopting(t, func(t *testing.T, config func(string) Config) {
		file := filepath.Join(t.TempDir(), "ready")
		other := adopt(t, config("echo >"+file+"; trap 'exit 7' TERM; while :; do sleep 0.02; done"))
		other.record(Started)
		waitFor(t, file)
		s := adopt(t, config("exit 0"))
		s.record(Started)
		s.record(Exited)
		s.exit()
		if err := other.cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if rec := other.record(Exited); rec.Value != 7<<8 {
			t.Errorf("the other run ended with %#x", rec.Value)
		}
		other.exit()
	})
}

// A command that cannot be executed ends the init as it does pid 1.
func TestAdoptExecFailure(t *testing.T) {
	adopting(t, func(t *testing.T, config func(string) Config) {
		c := config("")
		c.Path = "/nowhere/at/all"
		s := adopt(t, c)
		if rec := s.record(ExecFailed); rec.Errno() != unix.ENOENT {
			t.Errorf("errno %v", rec.Errno())
		}
		if code := s.exit(); code != 127 {
			t.Errorf("exit code %d, want 127", code)
		}
	})
}
