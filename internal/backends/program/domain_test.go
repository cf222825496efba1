package program

import (
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// C2: abstract sockets of the host are closed by a network of the command's own,
// or by the domain, or that is a gap.
func TestAbstractScopes(t *testing.T) {
	const abstract = landlockabi.ScopeAbstractUnix
	granted := []plan.SocketPath{{Path: "/run/s", Source: "/run/s"}, {Path: "@name", Source: "@name"}}
	for _, tt := range []struct {
		name            string
		mode            policy.NetworkMode
		sockets         []plan.SocketPath
		abi             int
		scoped, session bool // the domains are closed to them
		gap, refused    bool // there is a gap, for which a strict policy does not run
	}{
		{"own network", policy.NetworkNone, nil, 7, true, false, false, false},
		{"own network, granted", policy.NetworkNone, granted, 7, false, false, false, false},
		{"own network, a path is granted", policy.NetworkUser, granted[:1], 7, true, false, false, false},
		{"own network, old kernel", policy.NetworkLoopback, granted, 5, false, false, false, false},
		{"host's network", policy.NetworkHost, nil, 6, true, true, false, false},
		{"host's network, old kernel", policy.NetworkHost, nil, 5, true, true, true, false},
		{"host's network, no Landlock", policy.NetworkHost, granted[:1], 0, true, true, true, false},
		{"host's network, granted", policy.NetworkHost, granted, 7, false, false, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &Domain{Plan: &plan.Plan{Network: plan.Network{Mode: tt.mode}, Sockets: tt.sockets}, Snap: &host.Snapshot{Landlock: host.Landlock{ABI: tt.abi}}}
			if got := d.Scopes()&abstract != 0; got != tt.scoped || d.Scopes()&landlockabi.ScopeSignal == 0 {
				t.Errorf("Scopes() = %#x", d.Scopes())
			}
			if got := d.SessionScopes()&abstract != 0; got != tt.session {
				t.Errorf("SessionScopes() = %#x", d.SessionScopes())
			}
			gaps := d.AbstractGaps()
			if (len(gaps) > 0) != tt.gap || tt.gap && gaps[0].Optional == tt.refused {
				t.Errorf("the gaps are %+v", gaps)
			}
			if want := tt.mode == policy.NetworkHost && tt.scoped; d.Needed() != want {
				t.Errorf("Needed() = %v", d.Needed())
			}
		})
	}
}
