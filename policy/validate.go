package policy

import (
	"encoding"
	"errors"
	"slices"
)

// Validate reports all mistakes of a policy, each as an [*Error], joined: empty and relative
// paths, unknown values, bad hosts and ports, and rules of one source that contradict each
// other. Rules of different sources do not contradict each other: the higher layer or the
// stricter rule wins.
func (p Policy) Validate() error {
	c := &checker{doc: &document{Name: "policy", origins: map[string]Origin{}}, merged: true}
	p.fill(c)
	for _, e := range [...]struct {
		field string
		value encoding.TextMarshaler
	}{
		{"reads", p.Reads}, {"tmp", p.Tmp}, {"network.mode", p.Network.Mode}, {"network.link", p.Network.Link},
		{"env.policy", p.Env.Mode}, {"require", p.Require}, {"denials", p.Denials}, {"fallback", p.Backend.Fallback},
	} {
		_, err := e.value.MarshalText()
		c.fail(e.field, err)
	}
	c.all()
	errs := slices.Clone(p.errs)
	for _, e := range c.errs {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// fill writes the policy into an empty document, and reports values that a document cannot
// express.
func (p *Policy) fill(c *checker) {
	d := c.doc
	d.Reads, d.Tmp, d.Require, d.Denials, d.Fallback = &p.Reads, &p.Tmp, &p.Require, &p.Denials, &p.Backend.Fallback
	d.Home = &homeSection{Value: notEmpty(&p.Home.Value)}
	d.Review = (*reviewName)(&p.Review)
	d.Remap, d.Hosts = notEmpty(&p.Remap), notEmpty(&p.Hosts)
	d.Backend = &backendSection{Name: notEmpty(&p.Backend.Name)}
	d.Backends = &backendsSection{Bwrap: &bwrapSection{Path: notEmpty(&p.Backend.BwrapPath)}}
	d.Ask = &askSection{Hook: notEmpty(&p.Ask.Hook)}
	if p.Ask.Timeout != 0 {
		d.Ask.Timeout = (*duration)(&p.Ask.Timeout)
	}
	for field, o := range map[string]Origin{
		"reads": p.ReadsOrigin, "tmp": p.TmpOrigin, "denials": p.DenialsOrigin, "review": p.ReviewOrigin, "home": p.Home.Origin, "remap": p.RemapOrigin,
		"hosts": p.HostsOrigin, "network.mode": p.Network.Origin, "network.link": p.Network.LinkOrigin, "env.policy": p.Env.Origin,
		"bus": p.Bus.Origin, "ask": p.Ask.Origin, "backend": p.Backend.Origin, "backends": p.Backend.Origin,
	} {
		d.setOrigin(field, o)
	}
	p.fillPaths(c)
	fillList(d, "binds", &d.Binds, p.Binds, func(b Bind) (Bind, Origin) { return b, b.Origin })
	fillList(d, "persist", &d.Persist, p.Persist, func(s Persist) (string, Origin) { return s.Path, s.Origin })
	fillList(d, "sockets", &d.Sockets, p.Sockets, func(s Socket) (Socket, Origin) { return s, s.Origin })
	n := &networkSection{Mode: &p.Network.Mode, Link: &p.Network.Link}
	d.Network = n
	host := func(r HostRule) (hostEntry, Origin) { return r.entry(), r.Origin }
	fillList(d, "network.allow", &n.Allow, p.Network.Allow, host)
	fillList(d, "network.deny", &n.Deny, p.Network.Deny, host)
	fillList(d, "network.publish", &n.Publish, p.Network.Publish, func(r PortRule) (publishedPort, Origin) { return publishedPort(r), r.Origin })
	fillList(d, "network.forward", &n.Forward, p.Network.Forward, func(r PortRule) (forwardedPort, Origin) { return forwardedPort(r), r.Origin })
	fillList(d, "secrets", &d.Secrets, p.Secrets, func(s Secret) (Secret, Origin) { return s.clone(), s.Origin })
	d.Env = &envSection{Policy: &p.Env.Mode, Set: map[string]string{}}
	fillList(d, "env.pass", &d.Env.Pass, p.Env.Pass, func(e EnvPass) (string, Origin) { return e.Name, e.Origin })
	for _, s := range p.Env.Set {
		d.Env.Set[s.Name] = s.Value
		d.setOrigin(joinField("env.set", s.Name), s.Origin)
	}
	d.Bus = &busSection{Enabled: &p.Bus.Enabled}
	for _, r := range p.Bus.Rules {
		list := d.Bus.list(r.Access)
		if list == nil {
			c.errs = append(c.errs, place(faultf("write see, talk, own, call or broadcast", "%q is not an access to the bus", r.Access), r.Origin.in(d.Name), "bus"))
			continue
		}
		d.setOrigin(indexed("bus."+r.Access, len(*list)), r.Origin)
		*list = append(*list, r.String())
	}
	d.Limits = &limitsSection{(*duration)(&p.Limits.Time), (*size)(&p.Limits.Output), (*size)(&p.Limits.Memory),
		(*count)(&p.Limits.Processes), (*count)(&p.Limits.OpenFiles), (*size)(&p.Limits.FileSize)}
	for name, o := range p.Limits.Origin {
		d.setOrigin("limits."+name, o)
	}
	fillList(d, "tests", &d.Tests, p.Tests, func(t Test) (testEntry, Origin) { return t.entry(), t.Origin })
}

// fillPaths writes the rules for paths into a document, except for the long lists of the
// presets, which were checked when they were compiled.
func (p *Policy) fillPaths(c *checker) {
	d := c.doc
	d.Paths = &pathsSection{}
	lists := d.Paths.lists()
	for i, r := range p.Paths {
		if r.Origin.Layer == LayerPreset && (r.Access == Hidden || r.Access == Read && r.Protect) {
			continue
		}
		at := slices.IndexFunc(lists, func(l pathList) bool {
			return l.access == r.Access && l.protect == r.Protect && l.found == r.Found
		})
		if at < 0 {
			c.errs = append(c.errs, place(faultf("use Hidden, Read or Write, Protect with Read, and Found with Hidden",
				"a rule has the access %s, Protect %t and Found %t", r.Access, r.Protect, r.Found), r.Origin.in(d.Name), indexed("paths", i)))
			continue
		}
		list := lists[at].rules
		d.setOrigin(indexed(lists[at].field, len(*list)), r.Origin)
		*list = append(*list, r)
	}
	own := slices.DeleteFunc(slices.Clone(p.Exempt), func(e Exemption) bool { return e.Origin.Layer == LayerPreset })
	fillList(d, "paths.protect_unless_under", &d.Paths.ProtectUnlessUnder, own, func(e Exemption) (Exemption, Origin) { return e, e.Origin })
}

// fillList writes a list of a policy into a document. The list itself has the origin of
// its first entry.
func fillList[R, E any](d *document, field string, to *[]E, rules []R, entry func(R) (E, Origin)) {
	for i, r := range rules {
		e, o := entry(r)
		*to = append(*to, e)
		d.setOrigin(indexed(field, i), o)
		if i == 0 {
			d.setOrigin(field, o)
		}
	}
}

// setOrigin records where a field comes from, if that is known.
func (d *document) setOrigin(field string, o Origin) {
	if !o.IsZero() {
		d.origins[field] = o.in(o.name())
	}
}

func notEmpty(s *string) *string {
	if *s == "" {
		return nil
	}
	return s
}
