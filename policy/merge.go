package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// A Layered is a document in a layer.
type Layered struct {
	Doc   *Document
	Layer Layer
	// Untrusted: the document can make the policy stricter, never looser.
	Untrusted bool
}

// A layered is a checked document in a layer.
type layered struct {
	doc       *document
	layer     Layer
	untrusted bool
	// via is where an untrusted document names this preset. It is zero for other documents.
	via Origin
}

// origin is the origin of a field of the document.
func (l layered) origin(field string) Origin { return l.inLayer(l.doc.origin(field)) }

// inLayer completes the origin of an entry.
func (l layered) inLayer(o Origin) Origin {
	o.Layer, o.Untrusted = l.layer, l.untrusted
	return o
}

// An Ignored is something that an untrusted document asked for and did not get. Never: a
// trusted document would not get it either.
type Ignored struct {
	Text   string
	Origin Origin
	Never  bool `json:",omitzero"`
}

// Merge makes one policy of documents, lowest layer first; documents of one
// layer apply in their order.
//
//   - For single-valued fields, the highest layer wins.
//   - Lists are appended, each entry with its own origin.
//   - The presets of the highest trusted document that names any come below all
//     documents. If none does, that is the preset workspace. Presets for tools are
//     above the others; if there are no others, workspace is added.
//   - If no document says which variables pass, the mode is [EnvScrubbed].
//   - A list of allowed hosts without a mode means [NetworkUser], so that it has an
//     effect.
//   - An untrusted document's single values apply if they are stricter. Its path
//     rules stay, marked in their origins: they can be compared only on real paths.
//     Everything else that would loosen the policy is left out and returned. Presets
//     that it names also come below all documents, as untrusted ones.
//
// A document that was filled with [Document.Set] is checked here; its errors are like
// those of [Parse].
func Merge(layers ...Layered) (Policy, []Ignored, error) {
	sorted := slices.Clone(layers)
	slices.SortStableFunc(sorted, func(a, b Layered) int { return cmp.Compare(a.Layer, b.Layer) })
	own := make([]layered, len(sorted))
	var errs []error
	for i, l := range sorted {
		if l.Doc == nil {
			return Policy{}, nil, fmt.Errorf("layer %s: there is no document", l.Layer)
		}
		own[i] = layered{doc: &l.Doc.content, layer: l.Layer, untrusted: l.Untrusted}
		errs = append(errs, l.Doc.check())
	}
	if err := errors.Join(errs...); err != nil {
		return Policy{}, nil, err
	}
	below, err := presetLayers(own, preset)
	if err != nil {
		return Policy{}, nil, err
	}
	m := &merger{policy: Policy{Limits: Limits{Origin: map[string]Origin{}}}}
	all := slices.Concat(below, own)
	rules := 0
	for _, l := range all {
		for _, list := range l.doc.Paths.lists() {
			rules += len(*list.rules)
		}
	}
	m.policy.Paths = slices.Grow(m.policy.Paths, rules)
	for _, l := range all {
		m.apply(l)
	}
	m.finish()
	return m.policy, m.ignored, nil
}

// presetLayers returns the presets that the documents name, as layers: the
// trusted ones first, then those that only untrusted documents name.
func presetLayers(layers []layered, lookup func(string) (*document, error)) ([]layered, error) {
	names := []string{defaultPreset}
	for _, l := range layers {
		if !l.untrusted && l.doc.Presets != nil {
			names = l.doc.Presets
		}
	}
	have := map[string]bool{}
	docs, err := expandPresets(startingPresets(names), have, lookup)
	if err != nil {
		return nil, err
	}
	out := asPresets(docs, layered{})
	for _, l := range layers {
		if !l.untrusted {
			continue
		}
		docs, err := expandPresets(l.doc.Presets, have, lookup)
		if err != nil {
			return nil, err
		}
		out = append(out, asPresets(docs, layered{untrusted: true, via: l.origin("presets")})...)
	}
	return out, nil
}

// asPresets returns presets as layers. Except for document and layer, each is a copy of one.
func asPresets(docs []*document, one layered) []layered {
	out := make([]layered, len(docs))
	for i, d := range docs {
		one.doc, one.layer = d, presetLayer(d.Name)
		out[i] = one
	}
	return out
}

type merger struct {
	policy  Policy
	ignored []Ignored
}

// apply merges one document into the policy.
func (m *merger) apply(l layered) {
	m.switches(l)
	m.paths(l)
	m.places(l)
	m.network(l)
	m.secrets(l)
	m.bus(l)
	m.env(l)
	m.limits(l)
	m.ask(l)
	m.backend(l)
	m.tests(l)
}

func (m *merger) switches(l layered) {
	d, p := l.doc, &m.policy
	if d.Enabled != nil {
		off := !*d.Enabled
		mergeBool(m, l, "enabled", "enabled: false", &off, &p.Disabled, &p.DisabledOrigin)
	}
	mergeBool(m, l, "allow_privileged", "allow_privileged: true", d.AllowPrivileged, &p.Privileged, &p.PrivilegedOrigin)
	mergeEnum(m, l, "reads", d.Reads, &p.Reads, &p.ReadsOrigin)
	mergeEnum(m, l, "tmp", d.Tmp, &p.Tmp, &p.TmpOrigin)
	m.review(l)
	mergeEnum(m, l, "require", d.Require, &p.Require, new(Origin))
	mergeTrusted(m, l, "denials", d.Denials, &p.Denials, &p.DenialsOrigin)
	warm := !p.Cold
	mergeBool(m, l, "warm", "warm: true", d.Warm, &warm, &p.ColdOrigin)
	p.Cold = !warm
}

func (m *merger) paths(l layered) {
	if l.doc.Paths == nil {
		return
	}
	for _, list := range l.doc.Paths.lists() {
		for i, r := range *list.rules {
			r.Access, r.Protect, r.Found = list.access, list.protect, list.found
			r.Origin = l.entry(r.Origin, list.field, i)
			m.policy.Paths = append(m.policy.Paths, r)
		}
	}
	for i, e := range l.doc.Paths.ProtectUnlessUnder {
		o := l.entry(e.Origin, "paths.protect_unless_under", i)
		if m.loosenAt(l, o, "protect nothing under %s", e.Folder) {
			e.Origin = o
			m.policy.Exempt = append(m.policy.Exempt, e)
		}
	}
}

// entry returns the origin of a list entry. Entries of presets have their own origin; for
// others it is looked up.
func (l layered) entry(o Origin, list string, i int) Origin {
	if o.IsZero() {
		return l.origin(indexed(list, i))
	}
	return l.inLayer(o)
}

// places merges the settings that change where files appear inside.
func (m *merger) places(l layered) {
	d, p := l.doc, &m.policy
	for i, b := range d.Binds {
		if o, ok := m.loosen(l, indexed("binds", i), "bind %s", b.Source); ok {
			b.Origin = o
			p.Binds = append(p.Binds, b)
		}
	}
	for i, path := range d.Persist {
		if o, ok := m.loosen(l, indexed("persist", i), "persist %s", path); ok {
			p.Persist = append(p.Persist, Persist{path, o})
		}
	}
	for i, s := range d.Sockets {
		if o, ok := m.loosen(l, indexed("sockets", i), "socket %s", s.Path); ok {
			s.Origin = o
			p.Sockets = append(p.Sockets, s)
		}
	}
	mergeTrusted(m, l, "remap", d.Remap, &p.Remap, &p.RemapOrigin)
	mergeTrusted(m, l, "hosts", d.Hosts, &p.Hosts, &p.HostsOrigin)
	if d.Home == nil {
		return
	}
	mergeTrusted(m, l, "home.value", d.Home.Value, &p.Home.Value, &p.Home.Origin)
	visible := !p.Home.Hidden
	mergeBool(m, l, "home.visible", "home.visible: true", d.Home.Visible, &visible, &p.Home.Origin)
	p.Home.Hidden = !visible
}

func (m *merger) env(l layered) {
	e, p := l.doc.Env, &m.policy.Env
	if e == nil {
		return
	}
	mergeEnum(m, l, "env.policy", e.Policy, &p.Mode, &p.Origin)
	for i, name := range e.Pass {
		if o, ok := m.loosen(l, indexed("env.pass", i), "env pass %s", name); ok {
			p.Pass = append(p.Pass, EnvPass{name, o})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Set)) {
		if o, ok := m.loosen(l, joinField("env.set", name), "env set %s", name); ok {
			m.setVariable(EnvSet{name, e.Set[name], o})
		}
	}
}

// setVariable sets a variable and replaces the value of a lower layer.
func (m *merger) setVariable(s EnvSet) {
	set := &m.policy.Env.Set
	if i := slices.IndexFunc(*set, func(o EnvSet) bool { return o.Name == s.Name }); i >= 0 {
		(*set)[i] = s
		return
	}
	*set = append(*set, s)
}

func (m *merger) backend(l layered) {
	d, p := l.doc, &m.policy.Backend
	if b := d.Backend; b != nil {
		mergeTrusted(m, l, "backend.name", b.Name, &p.Name, &p.Origin)
		mergeEnum(m, l, "backend.fallback", b.Fallback, &p.Fallback, new(Origin))
	}
	mergeEnum(m, l, "fallback", d.Fallback, &p.Fallback, new(Origin))
	if d.Backends == nil || d.Backends.Bwrap == nil {
		return
	}
	w := d.Backends.Bwrap
	mergeTrusted(m, l, "backends.bwrap.path", w.Path, &p.BwrapPath, new(Origin))
	for i, arg := range w.ExtraArgs {
		if _, ok := m.loosen(l, indexed("backends.bwrap.extra_args", i), "bwrap argument %s", arg); ok {
			p.BwrapArgs = append(p.BwrapArgs, arg)
		}
	}
}

func (m *merger) tests(l layered) {
	for i, t := range l.doc.Tests {
		a := t.set()[0]
		m.policy.Tests = append(m.policy.Tests, Test{a.name, *a.target, t.Want == "allow", l.origin(indexed("tests", i))})
	}
}

// ask merges who decides. It ignores a project's file even if that is trusted: the hook runs
// outside of any sandbox, and decides about the project's commands.
func (m *merger) ask(l layered) {
	s := l.doc.Ask
	if s == nil {
		return
	}
	to := &m.policy.Ask
	if l.layer == LayerProject {
		m.ignored = append(m.ignored, Ignored{Text: "ask is ignored: only your own policy says who decides", Origin: l.origin("ask"), Never: true})
		return
	}
	mergeTrusted(m, l, "ask.hook", s.Hook, &to.Hook, &to.Origin)
	mergeTrusted(m, l, "ask.timeout", s.Timeout, (*duration)(&to.Timeout), &to.Origin)
}
