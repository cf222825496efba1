package apitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// N10: commands of a fast session see each other; that is documented.
func TestWarmFastShares(t *testing.T) {
	testenv.Need(t, "userns")
	dir := workspace(t)
	s := openWarm(t, dir, cloche.WithWarmFast())
	inOneSandbox(t, func() bool {
		startShell(t, s, "echo text > /tmp/a; exec sleep 61 # up", "")
		found := false
		testenv.Eventually(t, "the second command finds the first", func() bool {
			r := capture(t, s, "cat /tmp/a; cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
			found = strings.HasPrefix(string(r.Stdout), "text\n") && strings.Contains(string(r.Stdout), "sleep 61")
			return found || madeNew(r) != ""
		})
		return found
	})
}

// inOneSandbox requires that commands share a sandbox. If the machine changed between
// two, so that the second got a new one, they are tried again.
func inOneSandbox(t *testing.T, try func() bool) {
	t.Helper()
	for range 5 {
		if try() {
			return
		}
	}
	t.Error("no two commands got the same sandbox")
}

// madeNew returns the notice that a sandbox was replaced, if there is one.
func madeNew(r *cloche.Result) string {
	for _, n := range r.Notices {
		if strings.HasPrefix(n.Text, "the session made a new sandbox") {
			return n.Text
		}
	}
	return ""
}

// N10: the loopback and abstract sockets are the session's: commands of one reach
// each other, and nobody else does.
func TestWarmSharesLoopback(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	eachWarm(t, func(t *testing.T, s *cloche.Session, dir string) {
		shareLoopback(t, s, self)
		other := openWarm(t, dir, cloche.WithWarm())
		if r, err := other.Command(t.Context(), self, helperWord, "dial").Capture(); err != nil || r.Success() {
			t.Errorf("a command of another session got through: %v", err)
		}
		if helper("dial") == nil {
			t.Error("the host got through")
		}
	})
}

// shareLoopback requires that a command reaches one that it shares the sandbox with.
func shareLoopback(t *testing.T, s *cloche.Session, self string) {
	inOneSandbox(t, func() bool {
		network := firstLine(t, s.Command(t.Context(), self, helperWord, "listen"))
		r, err := s.Command(t.Context(), self, helperWord, "dial").Capture()
		if err != nil || !r.Success() && madeNew(r) == "" {
			t.Fatalf("another command of the session: %v, %s; the first has %s", err, r.Stdout, network)
		}
		if !r.Success() {
			t.Log(madeNew(r))
		}
		return r.Success()
	})
}

// N10: a workspace that is replaced is the one that the next command works in.
func TestWarmFollowsWorkspace(t *testing.T) {
	eachWarm(t, func(t *testing.T, s *cloche.Session, dir string) {
		capture(t, s, "true") // whatever else has changed on the machine
		if err := os.Rename(dir, dir+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if r := capture(t, s, "echo x > file"); !strings.Contains(madeNew(r), dir) {
			t.Errorf("the result does not tell: %+v", r.Notices)
		}
		if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
			t.Error(err)
		}
	})
}

// N10: Refresh makes a new sandbox; a command in the old one keeps it.
func TestWarmRefresh(t *testing.T) {
	testenv.Need(t, "userns")
	dir := workspace(t)
	s := openWarm(t, dir, cloche.WithWarmFast())
	c := startShell(t, s, "echo old > /tmp/mark; echo up; while [ ! -e go ]; do sleep 0.05; done; cat /tmp/mark >out")
	s.Refresh()
	if r := capture(t, s, "cat /tmp/mark; touch go"); strings.Contains(string(r.Stdout), "old") {
		t.Error("the next command is in the old sandbox")
	}
	if err := c.Wait(); err != nil {
		t.Errorf("the command in the old sandbox: %v", err)
	}
	if out, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || string(out) != "old\n" {
		t.Errorf("it found %q (%v)", out, err)
	}
	if pids := parkedBelow(os.Getpid()); len(pids) != 1 {
		t.Errorf("parked processes %v, want 1", pids)
	}
}
