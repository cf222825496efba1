package cli

import (
	"strings"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// socketCell names a socket, and the host's if it is shown elsewhere.
func socketCell(s plan.SocketPath) string {
	cell := s.Path
	if s.Source != s.Path {
		cell += " (" + s.Source + ")"
	}
	if s.Variable != "" {
		cell += " by " + s.Variable
	}
	return cell
}

// writeBus is what of the session bus can be reached.
func (e *explanation) writeBus(b *strings.Builder) {
	if e.Bus == nil {
		return
	}
	t := &table{}
	t.add(e.Bus.Path, "a proxy of "+e.Bus.Address, e.Bus.Origin.String())
	for _, r := range e.Bus.Rules {
		t.add(string(r.Access), r.String(), r.Origin.String())
	}
	section(b, "session bus", t)
}

// bus lists the rules for the session bus.
func (l *ruleList) bus(b policy.Bus) {
	if !b.Enabled {
		return
	}
	l.set("bus.enabled", true, b.Origin)
	for _, a := range []policy.BusAccess{policy.BusSee, policy.BusTalk, policy.BusOwn, policy.BusCall, policy.BusBroadcast} {
		for _, r := range b.Rules {
			if r.Access == a {
				l.add("bus."+string(a), r.String(), r.Origin)
			}
		}
	}
}

// busFact is about the proxy of the session bus, which nobody needs who grants
// none.
func busFact() fact {
	const proxy = "xdg-dbus-proxy"
	path := machine.FindProgram(proxy)
	if path == "" {
		return fact{name: "session bus", text: "cannot be granted: the package " + proxy + " is not installed"}
	}
	return fact{name: "session bus", outcome: host.Yes, text: "can be granted, filtered by " + path}
}
