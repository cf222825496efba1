package policy

import (
	"maps"
	"slices"
)

// Clone returns a copy of p that shares nothing with it.
func (p Policy) Clone() Policy {
	p.Paths = slices.Clone(p.Paths)
	p.Exempt = slices.Clone(p.Exempt)
	p.Binds = slices.Clone(p.Binds)
	p.Persist = slices.Clone(p.Persist)
	n := &p.Network
	n.Allow, n.Deny = cloneHosts(n.Allow), cloneHosts(n.Deny)
	n.Publish, n.Forward = slices.Clone(n.Publish), slices.Clone(n.Forward)
	p.Secrets = cloneSecrets(p.Secrets)
	p.Env.Pass = slices.Clone(p.Env.Pass)
	p.Env.Set = slices.Clone(p.Env.Set)
	p.Sockets = slices.Clone(p.Sockets)
	p.Bus.Rules = slices.Clone(p.Bus.Rules)
	p.Limits.Origin = maps.Clone(p.Limits.Origin)
	p.Backend.BwrapArgs = slices.Clone(p.Backend.BwrapArgs)
	p.Tests = slices.Clone(p.Tests)
	p.errs = slices.Clone(p.errs)
	return p
}

func cloneHosts(rules []HostRule) []HostRule {
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].Methods, rules[i].Paths = slices.Clone(rules[i].Methods), slices.Clone(rules[i].Paths)
	}
	return rules
}
