package policy

import (
	"cmp"
	"errors"
	"path/filepath"
	"sync"
)

// goAPI is the origin of everything that Go code sets.
var goAPI = Origin{Layer: LayerCommand, Source: "Go API"}

// workspacePreset is the policy of the preset workspace, merged once. It is shared: callers
// get a copy.
var workspacePreset = sync.OnceValue(func() Policy {
	p, err := FromPreset(defaultPreset)
	if err != nil {
		panic("policy: the embedded presets do not parse: " + err.Error())
	}
	return p
})

// Workspace returns the default policy for one folder: the host is readable without its
// secrets, dir is writable, there is no network, and the environment is scrubbed. dir is
// absolute or has another form of [PathRule]. If it is absolute, commands under the policy
// work in it.
func Workspace(dir string) Policy {
	p := workspacePreset().Clone()
	for i := range p.Paths {
		if p.Paths[i].Path == "urn:cloche:workspace" {
			p.Paths[i].Path = dir
		}
	}
	if filepath.IsAbs(dir) {
		p.Workspace = dir
	}
	return p
}

// FromPreset returns the policy of presets, later ones over earlier ones.
func FromPreset(names ...string) (Policy, error) {
	p, _, err := Merge(Layered{Doc: &Document{content: document{Name: goAPI.Source, Presets: append([]string{}, names...)}}, Layer: LayerCommand})
	return p, err
}

// An Option changes a policy; see [Policy.With].
type Option func(*Policy)

// With returns a copy of p with the options applied in their order. The copy
// shares nothing with p.
func (p Policy) With(opts ...Option) Policy {
	c := p.Clone()
	for _, o := range opts {
		o(&c)
	}
	return c
}

// Set sets a field to a value in the form of a policy file, as [Document.Set] does:
// Set("tmp", "shared"). To a list it adds the values: Set("network.publish", "8080:80").
// It cannot name presets; see [FromPreset]. [Policy.Validate] reports a wrong value.
func Set(field string, values ...string) Option {
	var doc Document
	for _, v := range values {
		if err := doc.Set(field, v, goAPI.Source); err != nil {
			return invalid(place(err, goAPI, field))
		}
	}
	d := &doc.content
	if err := d.check(); err != nil {
		return invalid(err)
	}
	if d.Presets != nil {
		return invalid(errors.New("policy: presets cannot be added to a policy; use FromPreset"))
	}
	return func(p *Policy) {
		m := merger{policy: *p}
		m.apply(layered{doc: d, layer: LayerCommand})
		if d.Network != nil {
			m.policy.Network.dropUnused()
		}
		*p = m.policy
	}
}

// invalid returns an option that makes [Policy.Validate] return err.
func invalid(err error) Option {
	return func(p *Policy) { p.errs = append(p.errs, err) }
}

// AllowRead makes paths readable. A leading "?" makes a path optional, here and in the other
// options that take paths.
func AllowRead(paths ...string) Option { return Set("paths.read", paths...) }

// AllowWrite makes paths readable and writable.
func AllowWrite(paths ...string) Option { return Set("paths.write", paths...) }

// HidePaths hides paths.
func HidePaths(paths ...string) Option { return Set("paths.hide", paths...) }

// ProtectPaths prevents changes to paths inside a writable folder, even if they do not exist
// yet.
func ProtectPaths(paths ...string) Option { return Set("paths.protect", paths...) }

// AllowSocket allows connections to unix sockets.
func AllowSocket(paths ...string) Option { return Set("sockets", paths...) }

// WithPersist keeps folders in cloche's own store; see [Policy].
func WithPersist(paths ...string) Option { return Set("persist", paths...) }

// WithBind shows the host's source at target. An empty target is the same path.
func WithBind(source, target string, readOnly bool) Option {
	return func(p *Policy) {
		e := parsePath(source)
		p.Binds = append(p.Binds, Bind{e.Path, target, readOnly, e.Optional, goAPI})
	}
}

// WithNetwork sets the network mode. Modes other than [NetworkUser] have no rules for
// hosts, so they drop the allowed ones; [NetworkHost] drops the ports, too.
func WithNetwork(mode NetworkMode) Option {
	return func(p *Policy) {
		p.Network.Mode, p.Network.Origin = mode, goAPI
		if mode == NetworkHost {
			p.Network.Publish, p.Network.Forward = nil, nil
		}
		p.Network.dropUnused()
	}
}

// AllowHosts allows connections to hosts, in the forms of [ParseHost], and sets the mode to
// [NetworkUser].
func AllowHosts(hosts ...string) Option {
	allow := Set("network.allow", hosts...)
	return func(p *Policy) {
		p.Network.Mode, p.Network.Origin = NetworkUser, goAPI
		allow(p)
	}
}

// PassEnv lets variables of the caller through. A name may end in "*".
func PassEnv(names ...string) Option { return Set("env.pass", names...) }

// WithEnv sets a variable. The value is passed on unchanged.
func WithEnv(name, value string) Option {
	return func(p *Policy) {
		m := merger{policy: *p}
		m.setVariable(EnvSet{Name: name, Value: value, Origin: goAPI})
		p.Env.Set = m.policy.Env.Set
	}
}

// WithReview keeps what commands change in the review of that name, until a person applies or
// discards it; empty means [DefaultReview]. See [Policy].
func WithReview(name string) Option { return Set("review", cmp.Or(name, "true")) }

// WithLimits sets the limits that are not zero in l.
func WithLimits(l Limits) Option {
	return func(p *Policy) {
		for _, name := range limitNames {
			if v := l.value(name); v != 0 {
				p.Limits.set(name, v, goAPI)
			}
		}
	}
}

// WithBackend chooses a backend by name.
func WithBackend(name string) Option {
	return func(p *Policy) { p.Backend.Name, p.Backend.Origin = name, goAPI }
}

// WithRequire says what happens if a rule cannot be enforced.
func WithRequire(s Strength) Option { return func(p *Policy) { p.Require = s } }
