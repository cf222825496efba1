package policy

import (
	"slices"
	"strings"
)

// A Bus says what the command can use on the user's session bus. The zero value is nothing:
// the command does not see the bus.
type Bus struct {
	// Enabled shows the bus, through a proxy that passes only what Rules allow and the bus's
	// own harmless calls.
	Enabled bool
	Rules   []BusRule
	Origin  Origin
}

// busAccesses are the values of BusRule.Access, in the order of a policy file.
var busAccesses = [...]string{"see", "talk", "own", "call", "broadcast"}

// A BusRule gives one name an access.
type BusRule struct {
	// Access is what may be done with the name:
	//
	//   - "see": see who owns it, and when that changes.
	//   - "talk": call every method of its owner, also on other names that the same
	//     program owns. It is started if it does not run.
	//   - "own": own the name, and be called by it.
	//   - "call": call the methods that Rule describes.
	//   - "broadcast": receive the signals that Rule describes.
	Access string
	// Name is a well-known name, or "prefix.*" for all below the prefix.
	Name string
	// Rule is for "call" and "broadcast": "[METHOD][@PATH]", where METHOD is an
	// interface with a member or "*", and PATH an object's path that may end in
	// "/*". Empty is everything.
	Rule   string
	Origin Origin
}

// String returns the rule's value as a file has it.
func (r BusRule) String() string {
	if r.Rule == "" {
		return r.Name
	}
	return r.Name + "=" + r.Rule
}

// busSection is the bus part of a document. In a file it may also be a boolean.
type busSection struct {
	Enabled   *bool    `json:"enabled,omitempty" jsonschema:"Whether there is a session bus. A list below means true."`
	See       []string `json:"see,omitempty" jsonschema:"Names that are visible and cannot be called."`
	Talk      []string `json:"talk,omitempty" jsonschema:"Names whose methods may all be called: org.example.App, or org.example.* for all names below."`
	Own       []string `json:"own,omitempty" jsonschema:"Names that the command may own."`
	Call      []string `json:"call,omitempty" jsonschema:"Methods that may be called: NAME=INTERFACE.METHOD@/PATH; method and path may end in *."`
	Broadcast []string `json:"broadcast,omitempty" jsonschema:"Signals that pass: NAME=INTERFACE.SIGNAL@/PATH; signal and path may end in *."`
}

func (b *busSection) fromScalar(tag, value string) error {
	if tag != "!!bool" {
		return faultf("write true, false or {talk: [NAME]}", "%q is neither true nor false", value)
	}
	on := isTrue(value)
	b.Enabled = &on
	return nil
}

// list returns the list of names for one access, or nil for an unknown access.
func (b *busSection) list(a string) *[]string {
	switch a {
	case "see":
		return &b.See
	case "talk":
		return &b.Talk
	case "own":
		return &b.Own
	case "call":
		return &b.Call
	case "broadcast":
		return &b.Broadcast
	}
	return nil
}

// named reports whether the section lists any name.
func (b *busSection) named() bool {
	return slices.ContainsFunc(busAccesses[:], func(a string) bool { return len(*b.list(a)) > 0 })
}

// bus merges the bus. If a layer disables it, the names that lower layers gave are dropped.
func (m *merger) bus(l layered) {
	s, p := l.doc.Bus, &m.policy.Bus
	if s == nil {
		return
	}
	on, field := s.Enabled, "bus.enabled"
	if on == nil && s.named() && !l.untrusted {
		implied := true
		on, field = &implied, "bus"
	}
	mergeBool(m, l, field, "bus: true", on, &p.Enabled, &p.Origin)
	if !p.Enabled {
		p.Rules = nil
	}
	for _, a := range busAccesses {
		for i, text := range *s.list(a) {
			if o, ok := m.loosen(l, indexed("bus."+a, i), "bus "+a+" %s", text); ok && p.Enabled {
				name, rule, _ := strings.Cut(text, "=")
				p.Rules = append(p.Rules, BusRule{a, name, rule, o})
			}
		}
	}
}

func (c *checker) bus() {
	b := c.doc.Bus
	if b == nil {
		return
	}
	for _, a := range busAccesses {
		for i, text := range *b.list(a) {
			name, rule, has := strings.Cut(text, "=")
			c.fail(indexed("bus."+a, i), checkBusRule(a, name, rule, has))
		}
	}
	if b.Enabled != nil && !*b.Enabled && b.named() {
		c.failf("bus.enabled", "remove the names, or enabled: false", "names have no meaning where there is no bus")
	}
}
