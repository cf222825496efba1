package cloche

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// session is a session on a system of which only a snapshot is known.
func sessionOn(t *testing.T, snap *host.Snapshot, want policy.Backend) *Session {
	t.Helper()
	registry, err := new(prober).registryFor(snap.OS, policy.Backend{})
	if err != nil {
		t.Fatal(err)
	}
	return &Session{policy: policy.Policy{Backend: want}, opts: options{registry: registry}}
}

// A11 W5: on Windows nothing runs, nothing is run unconfined unasked, the error is
// typed, and it says where cloche works.
func TestWindowsIsRefused(t *testing.T) {
	snap := &host.Snapshot{OS: "windows", FS: host.Tree{}}
	for _, name := range []string{"", "auto", "required"} {
		_, _, err := sessionOn(t, snap, policy.Backend{Name: name}).choose(snap)
		unavailable, ok := errors.AsType[*UnavailableError](err)
		if !ok || unavailable.Cause() != host.CauseUnsupportedOS {
			t.Fatalf("%q: %v", name, err)
		}
		const want = "cloche confines nothing on Windows itself: it needs the kernel of Linux, which WSL has (wsl --install, then: wsl -- cloche run …)"
		if err.Error() != want {
			t.Errorf("%q: %v", name, err)
		}
	}
	b, notices, err := sessionOn(t, snap, policy.Backend{Fallback: policy.FallbackWarn}).choose(snap)
	if err != nil || b.Name() != "none" || len(notices) != 1 || !strings.Contains(notices[0].Text, "WSL") {
		t.Errorf("asked for: %v %v %v", b, notices, err)
	}
}

// C5 A11: on macOS Seatbelt is chosen, or nothing is; elsewhere who names it is
// told why it cannot be had.
func TestSystemsChooseTheirBackend(t *testing.T) {
	yes, no := host.Probe{Outcome: host.Yes}, host.Probe{Outcome: host.No, Cause: host.CauseNested, Reason: "in a sandbox already"}
	mac := &host.Snapshot{OS: "darwin", FS: host.Tree{}, Seatbelt: yes}
	if b, _, err := sessionOn(t, mac, policy.Backend{}).choose(mac); err != nil || b.Name() != "seatbelt" {
		t.Errorf("macOS: %v %v", b, err)
	}
	mac = &host.Snapshot{OS: "darwin", FS: host.Tree{}, Seatbelt: no}
	_, _, err := sessionOn(t, mac, policy.Backend{}).choose(mac)
	none, ok := errors.AsType[*backend.NoBackendError](err)
	if !ok || len(none.Errs) != 1 || firstCause(err) != host.CauseNested {
		t.Errorf("macOS in a sandbox: %v", err)
	}
	linux := &host.Snapshot{OS: "linux", FS: host.Tree{}, Seatbelt: host.Probe{Outcome: host.No, Cause: host.CauseUnsupportedOS, Reason: "another system"}}
	if _, _, err := sessionOn(t, linux, policy.Backend{Name: "seatbelt"}).choose(linux); firstCause(err) != host.CauseUnsupportedOS {
		t.Errorf("Linux: %v", err)
	}
}

// C5 F11: a whole launch on a recorded Mac: the command, its environment and the
// gaps that a strict policy runs with.
func TestLaunchOnMac(t *testing.T) {
	data, err := os.ReadFile("testdata/hosts/macos-15.json")
	if err != nil {
		t.Fatal(err)
	}
	snap, err := host.ParseRecorded(data)
	if err != nil {
		t.Fatal(err)
	}
	pol, err := policy.FromPreset("workspace")
	if err != nil {
		t.Fatal(err)
	}
	s := sessionOn(t, snap, policy.Backend{})
	s.policy = pol
	s.opts.workspace, s.opts.snapshot = snap.Cwd, func(string) (*host.Snapshot, error) { return snap, nil }
	l, err := s.Command(t.Context(), "true").Launch()
	if err != nil {
		t.Fatal(err)
	}
	if l.Backend != "seatbelt" || !l.Confined || !slices.Contains(l.Env, SandboxVariable+"=seatbelt") || slices.Contains(l.Env, "GITHUB_TOKEN=example-not-a-token") {
		t.Errorf("launch %+v, variables %v", l, l.Env)
	}
	text, _, err := SeatbeltProfile(mustPlan(t, s))
	if err != nil || !strings.HasPrefix(text, "(version 1)\n(deny default)\n") {
		t.Errorf("profile %.80s (%v)", text, err)
	}
}

func mustPlan(t *testing.T, s *Session) *plan.Plan {
	t.Helper()
	p, err := s.Command(t.Context(), "true").Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
