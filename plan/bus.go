package plan

import (
	"slices"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// A Bus is the user's session bus as the command sees it: a proxy outside that listens on its
// own socket and passes only messages that Rules allow.
type Bus struct {
	// Address is the host's bus: one address with a path or an abstract name.
	Address string `json:"address"`
	// Path is the proxy's socket inside, Source is its host path. In a plan without a command,
	// Source contains a "*": the name is chosen when the command starts.
	Path   string        `json:"path"`
	Source string        `json:"source"`
	Rules  []BusRule     `json:"rules,omitempty"`
	Origin policy.Origin `json:"origin"`
}

// A BusRule gives access to one name on the bus, or to all names below it.
type BusRule struct {
	Access string `json:"access"`
	Name   string `json:"name"`
	// Rule is "[METHOD][@PATH]" for access to calls and broadcasts.
	Rule   string        `json:"rule,omitempty"`
	Origin policy.Origin `json:"origin"`
}

// String returns the rule's value as a policy file has it.
func (r BusRule) String() string { return policy.BusRule{Name: r.Name, Rule: r.Rule}.String() }

// Abstract reports whether the socket has an abstract name instead of a path.
func (s SocketPath) Abstract() bool { return s.Source != "" && s.Source[0] == '@' }

// GrantsSocket reports whether the plan shows a socket of the host at a path inside, and
// allows connecting to it.
func (p *Plan) GrantsSocket(inside string) bool {
	for i := range p.Paths {
		if e := &p.Paths[i]; e.Path == inside && e.Kind == hostfs.Socket && e.Content == Host && e.Access == policy.Write {
			return true
		}
	}
	return false
}

// HiddenAt returns the host path whose content is not visible at a path inside, because a rule
// hides it or a private folder is there.
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

// WithBusAt returns a copy of a plan that has a bus, with the host path of the bus proxy's
// socket in it.
func (p *Plan) WithBusAt(socket string) *Plan {
	placed, bus := *p, *p.Bus
	bus.Source = socket
	placed.Bus, placed.Paths = &bus, slices.Clone(p.Paths)
	for i := range placed.Paths {
		if placed.Paths[i].Path == bus.Path {
			placed.Paths[i].Source = socket
		}
	}
	return &placed
}

// FolderMode returns the mode of a writable private folder.
func (e *Path) FolderMode() uint32 {
	if e.Private {
		return 0o700
	}
	return 0o1777
}
