package engine

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/seatbelt"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/goldentest"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/policy"
)

// engineOn is an engine on a system of which only a snapshot is known.
func engineOn(t *testing.T, snap *host.Snapshot, p policy.Policy) *Engine {
	t.Helper()
	registry, err := new(prober).registryFor(snap.OS, policy.Backend{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{Policy: p, Workspace: snap.Cwd, Registry: registry,
		Snapshot: func(string) (*host.Snapshot, error) { return snap, nil },
		Environ:  func() []string { return snap.Environ },
		Granted:  func() []policy.Option { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func choose(t *testing.T, snap *host.Snapshot, want policy.Backend) Choice {
	return engineOn(t, snap, policy.Policy{Backend: want}).Choose(snap)
}

// A11 W5: on Windows nothing runs, nothing is run unconfined unasked, the error is
// typed, and it says where cloche works.
func TestWindowsIsRefused(t *testing.T) {
	snap := &host.Snapshot{OS: "windows", FS: hostfs.Tree{}}
	for _, name := range []string{"", "auto", "required"} {
		err := choose(t, snap, policy.Backend{Name: name}).Err
		unavailable, ok := errors.AsType[*UnavailableError](err)
		if !ok || unavailable.Cause() != cause.UnsupportedOS {
			t.Fatalf("%q: %v", name, err)
		}
		const want = "cloche confines nothing on Windows itself: it needs the kernel of Linux, which WSL has (wsl --install, then: wsl -- cloche run …)"
		if err.Error() != want {
			t.Errorf("%q: %v", name, err)
		}
	}
	c := choose(t, snap, policy.Backend{Fallback: policy.FallbackWarn})
	if c.Err != nil || c.Backend.Name() != "none" || len(c.Notices()) != 1 || !strings.Contains(c.Notices()[0].Text, "WSL") {
		t.Errorf("asked for: %+v", c)
	}
}

// C5 A11: on macOS Seatbelt is chosen, or nothing is; elsewhere who names it is
// told why it is not available.
func TestSystemsChooseTheirBackend(t *testing.T) {
	yes, no := host.Probe{Outcome: host.Yes}, host.Probe{Outcome: host.No, Cause: cause.Nested, Reason: "in a sandbox already"}
	mac := &host.Snapshot{OS: "darwin", FS: hostfs.Tree{}, Seatbelt: yes}
	if c := choose(t, mac, policy.Backend{}); c.Err != nil || c.Backend.Name() != "seatbelt" {
		t.Errorf("macOS: %+v", c)
	}
	mac = &host.Snapshot{OS: "darwin", FS: hostfs.Tree{}, Seatbelt: no}
	err := choose(t, mac, policy.Backend{}).Err
	none, ok := errors.AsType[*backend.NoBackendError](err)
	if !ok || len(none.Errs) != 1 || firstCause(err) != cause.Nested {
		t.Errorf("macOS in a sandbox: %v", err)
	}
	linux := &host.Snapshot{OS: "linux", FS: hostfs.Tree{}, Seatbelt: host.Probe{Outcome: host.No, Cause: cause.UnsupportedOS, Reason: "another system"}}
	if err := choose(t, linux, policy.Backend{Name: "seatbelt"}).Err; firstCause(err) != cause.UnsupportedOS {
		t.Errorf("Linux: %v", err)
	}
}

// C5 F11: a whole launch on a recorded Mac: the command, its environment and the
// gaps that a strict policy runs with.
func TestLaunchOnMac(t *testing.T) {
	data, err := os.ReadFile("../../testdata/hosts/macos-15.json")
	if err != nil {
		t.Fatal(err)
	}
	snap, err := goldentest.ParseRecorded(data)
	if err != nil {
		t.Fatal(err)
	}
	pol, err := policy.FromPreset("workspace")
	if err != nil {
		t.Fatal(err)
	}
	e, c := engineOn(t, snap, pol), &Command{Args: []string{"true"}}
	l, err := e.Launch(c)
	if err != nil {
		t.Fatal(err)
	}
	if l.Backend != "seatbelt" || !l.Confined || !slices.Contains(l.Env, SandboxVariable+"=seatbelt") || slices.Contains(l.Env, "GITHUB_TOKEN=example-not-a-token") {
		t.Errorf("launch %+v, variables %v", l, l.Env)
	}
	p, err := e.Plan(c)
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := seatbelt.Profile(p)
	if err != nil || !strings.HasPrefix(text, "(version 1)\n(deny default)\n") {
		t.Errorf("profile %.80s (%v)", text, err)
	}
}
