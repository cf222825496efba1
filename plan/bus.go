package plan

import (
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// A Bus is the user's session bus as the command sees it: a proxy that runs
// outside, listens on a socket of its own, and lets pass what Rules allow.
type Bus struct {
	// Address is the host's bus: one address with a path or an abstract name.
	Address string `json:"address"`
	// Path is the proxy's socket inside, Source the same outside. Where no command
	// runs yet Source has a "*": its name is made with the command.
	Path   string        `json:"path"`
	Source string        `json:"source"`
	Rules  []BusRule     `json:"rules,omitempty"`
	Origin policy.Origin `json:"origin"`
}

// A BusRule gives one name on the bus, or all below it, an access.
type BusRule struct {
	Access string `json:"access"`
	Name   string `json:"name"`
	// Rule is "[METHOD][@PATH]" for calls and broadcasts.
	Rule   string        `json:"rule,omitempty"`
	Origin policy.Origin `json:"origin"`
}

// String returns the rule's value as a policy file has it.
func (r BusRule) String() string { return policy.BusRule{Name: r.Name, Rule: r.Rule}.String() }

// Abstract reports whether the socket has a name in the network's namespace and
// no path.
func (s SocketPath) Abstract() bool { return s.Source != "" && s.Source[0] == '@' }

// GrantsSocket reports whether the plan shows a socket of the host at the path
// inside, to be connected to.
func (p *Plan) GrantsSocket(inside string) bool {
	for i := range p.Paths {
		if e := &p.Paths[i]; e.Path == inside && e.Kind == hostfs.Socket && e.Content == Host && e.Access == policy.Write {
			return true
		}
	}
	return false
}

// HiddenAt is the path of the host of which nothing is shown at a path inside: a
// rule hides it, or another folder lies there.
func (p *Plan) HiddenAt(inside string) (hostPath string, hidden bool) {
	e := p.Lookup(inside)
	switch {
	case e.Content != Empty && e.Access != policy.Hidden:
		return "", false
	case e.Source != "":
		return pathx.Rebase(e.Path, e.Source, inside), true
	}
	return inside, p.Inside == p.Workspace || !pathx.Within(p.Inside, inside)
}

// PlaceBus says where the proxy of the bus listens, in a plan that nobody else
// has yet.
func (p *Plan) PlaceBus(socket string) {
	if p.Bus == nil {
		return
	}
	bus := *p.Bus
	bus.Source = socket
	p.Bus = &bus
	for i := range p.Paths {
		if p.Paths[i].Path == bus.Path {
			p.Paths[i].Source = socket
		}
	}
}

// FolderMode is the mode of a private folder that can be written.
func (e *Path) FolderMode() uint32 {
	if e.Private {
		return 0o700
	}
	return 0o1777
}
