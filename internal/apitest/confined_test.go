package apitest

import (
	"context"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/approval"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// F9: a tool is approved because of the sandbox where one is really in force: not
// where it is switched off, is none by name, or where no backend works.
func TestConfinedDecidesApproval(t *testing.T) {
	testenv.Need(t, "userns")
	dir := workspace(t)
	registry, err := backend.NewRegistry(backend.Entry{Backend: broken{}})
	if err != nil {
		t.Fatal(err)
	}
	p := policy.Workspace(dir)
	off := p.Clone()
	off.Disabled = true
	for name, c := range map[string]struct {
		session *cloche.Session
		want    approval.Verdict
	}{
		"in force": {open(t, p, dir), approval.Approve},
		"off":      {open(t, off, dir), approval.Ask},
		"none":     {open(t, p.With(policy.WithBackend("none")), dir), approval.Ask},
		"broken":   {open(t, p, dir, cloche.WithRegistry(registry)), approval.Ask},
		"gaps":     {open(t, p.With(policy.WithBackend("landlock")), dir), approval.Ask},
	} {
		chain := approval.Chain{Sandbox: approval.Sandbox{OptedIn: true, ConfinedBy: c.session.ConfinedBy}}
		d := chain.Decide(t.Context(), approval.Call{Tool: "bash", SandboxIsEnough: true})
		if d.Verdict != c.want {
			t.Errorf("%s: %+v, want %v", name, d, c.want)
		}
		backend, why := c.session.ConfinedBy(t.Context())
		if (why == nil) != (c.want == approval.Approve) || (backend == "") != (why != nil) {
			t.Errorf("%s: confined by %q, %v", name, backend, why)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if name, err := open(t, p, dir).ConfinedBy(ended); err == nil || name != "" {
		t.Errorf("after the context ended: %q, %v", name, err)
	}
}
