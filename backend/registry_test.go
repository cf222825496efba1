package backend_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/plan"
)

// fake is a backend whose availability a test sets.
type fake struct {
	name string
	err  error
	asks *int
}

func (f fake) Name() string { return f.name }

func (fake) Mounts() bool { return false }

func (f fake) Available(*host.Snapshot) error {
	if f.asks != nil {
		*f.asks++
	}
	return f.err
}

func (f fake) Compile(*plan.Plan, *host.Snapshot) (*backend.Launch, error) {
	return &backend.Launch{Backend: f.name}, nil
}

func names(entries []backend.Entry) (out []string) {
	for _, e := range entries {
		out = append(out, e.Backend.Name())
	}
	return out
}

// F10: register, get, all by priority, count, replace, unregister.
func TestRegistry(t *testing.T) {
	r, err := backend.NewRegistry(
		backend.Entry{Backend: fake{name: "low"}, Priority: 10},
		backend.Entry{Backend: fake{name: "high"}, Priority: 90},
		backend.Entry{Backend: fake{name: "plain"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(r.All()); !slices.Equal(got, []string{"high", "plain", "low"}) {
		t.Errorf("All() = %v", got)
	}
	if e, ok := r.Get("plain"); !ok || e.Priority != 50 {
		t.Errorf("Get(plain) = %+v, %v", e, ok)
	}
	if err := r.Register(backend.Entry{Backend: fake{name: "low"}}); err == nil {
		t.Error("a second backend of one name is accepted")
	}
	for _, name := range []string{"", "auto", "required"} {
		if err := r.Register(backend.Entry{Backend: fake{name: name}}); err == nil {
			t.Errorf("the name %q is accepted", name)
		}
	}
	if !r.Unregister("low") || r.Unregister("low") {
		t.Error("Unregister does not say whether there was one")
	}
}

// F2: the highest priority that passes its probe; explicit ones never by themselves.
func TestDetect(t *testing.T) {
	broken := &backend.UnavailableError{Backend: "broken", Probe: host.Probe{Outcome: host.No, Cause: cause.Missing, Reason: "gone"}}
	r, err := backend.NewRegistry(
		backend.Entry{Backend: fake{name: "explicit"}, Priority: 99, Explicit: true},
		backend.Entry{Backend: fake{name: "broken", err: broken}, Priority: 90},
	)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Detect(&host.Snapshot{})
	var none *backend.NoBackendError
	var one *backend.UnavailableError
	if !errors.As(err, &none) || !errors.As(err, &one) || one.Probe.Cause != cause.Missing || !strings.Contains(err.Error(), "gone") {
		t.Fatalf("Detect: %v", err)
	}
	// Late registration is seen, although a detection failed before.
	if err := r.Register(backend.Entry{Backend: fake{name: "late"}, Priority: 10}); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Detect(&host.Snapshot{}); err != nil || e.Backend.Name() != "late" {
		t.Fatalf("Detect = %v, %v", e, err)
	}
}

// F10: a choice is remembered; a change of the registry or the machine forgets it.
func TestDetectionIsCached(t *testing.T) {
	asks := 0
	r, err := backend.NewRegistry(backend.Entry{Backend: fake{name: "one", asks: &asks}})
	if err != nil {
		t.Fatal(err)
	}
	detect := func(s *host.Snapshot, want int) {
		t.Helper()
		if _, err := r.Detect(s); err != nil {
			t.Fatal(err)
		}
		if asks != want {
			t.Errorf("asked %d times, want %d", asks, want)
		}
	}
	s := &host.Snapshot{UID: 1}
	detect(s, 1)
	detect(s, 1)
	r.Unregister("one")
	if err := r.Register(backend.Entry{Backend: fake{name: "one", asks: &asks}}); err != nil {
		t.Fatal(err)
	}
	detect(s, 2)
	detect(&host.Snapshot{UID: 2}, 3)
}

// A failure, conclusive or not, is asked again.
func TestFailureIsNotCached(t *testing.T) {
	asks := 0
	r, err := backend.NewRegistry(backend.Entry{Backend: fake{name: "one", asks: &asks, err: backend.ErrInconclusive}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := r.Detect(&host.Snapshot{}); !errors.Is(err, backend.ErrInconclusive) {
			t.Fatalf("Detect: %v", err)
		}
	}
	if asks != 2 {
		t.Errorf("asked %d times, want 2", asks)
	}
}
