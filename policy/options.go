package policy

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// goAPI is the origin of everything that Go code asks for.
var goAPI = Origin{Layer: LayerCommand, Source: "Go API"}

// workspacePreset is the preset's policy, merged once; it is shared and only
// handed out as a copy.
var workspacePreset = sync.OnceValue(func() Policy {
	p, err := FromPreset(defaultPreset)
	if err != nil {
		panic("policy: the embedded presets do not parse: " + err.Error())
	}
	return p
})

// Workspace returns the default policy for one folder, which is absolute or
// has another form of [PathRule]: the host can be read without its secrets, dir
// can be written, there is no network, and the environment is scrubbed. If dir is
// absolute, commands under the policy work in it.
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
	p, _, err := Merge(Layered{Doc: &Document{document{Name: goAPI.Source, Presets: append([]string{}, names...)}}, Layer: LayerCommand})
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

// WithText lays a policy in the form of a policy file over the policy, for example
// "tmp: shared" or "network: {link: proxy}". It cannot name presets; see [FromPreset].
// What is wrong with the text is reported by [Policy.Validate].
func WithText(text string) Option {
	doc, err := Parse(goAPI.Source, []byte(text))
	if err == nil && doc.content.Presets != nil {
		err = errors.New("WithText: presets cannot be added to a policy; use FromPreset")
	}
	return func(p *Policy) {
		if err != nil {
			p.errs = append(p.errs, err)
			return
		}
		content := doc.content
		content.marks = nil // a line of the text says nothing to a user
		m := merger{policy: *p}
		m.apply(layered{doc: &content, layer: LayerCommand})
		m.finish()
		*p = m.policy
	}
}

// addPaths adds rules for paths; a leading "?" makes a path optional.
func addPaths(rule PathRule, paths []string) Option {
	paths = slices.Clone(paths)
	return func(p *Policy) {
		for _, s := range paths {
			e := parsePath(s)
			rule.Path, rule.Optional, rule.Origin = e.Path, e.Optional, goAPI
			p.Paths = append(p.Paths, rule)
		}
	}
}

// AllowRead lets paths be read. A leading "?" makes a path optional, here and
// in the other options that take paths.
func AllowRead(paths ...string) Option { return addPaths(PathRule{Access: Read}, paths) }

// AllowWrite lets paths be read and written.
func AllowWrite(paths ...string) Option { return addPaths(PathRule{Access: Write}, paths) }

// HidePaths hides paths.
func HidePaths(paths ...string) Option { return addPaths(PathRule{Access: Hidden}, paths) }

// HideFound hides the files of the workspace that have one of the names when a
// command starts, at any depth. A name may hold * and ?. See [PathRule].
func HideFound(names ...string) Option {
	patterns := make([]string, len(names))
	for i, n := range names {
		patterns[i] = "**/" + n
	}
	return addPaths(PathRule{Access: Hidden, Found: true}, patterns)
}

// ProtectPaths keeps paths as they are inside a writable tree, also if they do
// not exist yet.
func ProtectPaths(paths ...string) Option {
	return addPaths(PathRule{Access: Read, Protect: true}, paths)
}

// ExemptFolders names folders in which the patterns of protecting rules do not
// hold; see [Exemption].
func ExemptFolders(folders ...string) Option {
	folders = slices.Clone(folders)
	return func(p *Policy) {
		for _, f := range folders {
			p.Exempt = append(p.Exempt, Exemption{Folder: f, Origin: goAPI})
		}
	}
}

// WithReads sets the baseline of what can be read.
func WithReads(r Reads) Option { return func(p *Policy) { p.Reads, p.ReadsOrigin = r, goAPI } }

// WithNetwork sets the network mode. Modes other than [NetworkUser] judge no
// hosts, so they drop the allowed ones; [NetworkHost] drops the ports, too.
func WithNetwork(mode NetworkMode) Option {
	return func(p *Policy) {
		p.Network.Mode, p.Network.Origin = mode, goAPI
		p.Network.drop(func(PortRule) bool { return true })
	}
}

// AllowHosts lets hosts be reached, in the forms of [ParseHost], and sets the
// mode to [NetworkUser]. A form that cannot be read is kept as it is, for
// [Policy.Validate] to report.
func AllowHosts(hosts ...string) Option {
	rules := hostRules(hosts)
	return func(p *Policy) {
		p.Network.Mode, p.Network.Origin = NetworkUser, goAPI
		p.Network.Allow = append(p.Network.Allow, rules...)
	}
}

// DenyHosts refuses hosts whatever is allowed, in the forms of [ParseHost].
func DenyHosts(hosts ...string) Option {
	rules := hostRules(hosts)
	return func(p *Policy) { p.Network.Deny = append(p.Network.Deny, rules...) }
}

// WithLink sets how packets leave in the mode [NetworkUser].
func WithLink(l Link) Option {
	return func(p *Policy) { p.Network.Link, p.Network.LinkOrigin = l, goAPI }
}

// PublishPorts lets the host connect to ports inside, in the forms of
// [parsePublish].
func PublishPorts(ports ...string) Option {
	rules := portRules(ports, parsePublish)
	return func(p *Policy) { p.Network.Publish = append(p.Network.Publish, rules...) }
}

// ForwardPorts lets the command connect to ports of the host's loopback, in the
// forms of [parseForward].
func ForwardPorts(ports ...string) Option {
	rules := portRules(ports, parseForward)
	return func(p *Policy) { p.Network.Forward = append(p.Network.Forward, rules...) }
}

// portRules reads ports. One that cannot be read becomes a rule that
// [Policy.Validate] reports.
func portRules(ports []string, parse func(string) (PortRule, error)) []PortRule {
	rules := make([]PortRule, len(ports))
	for i, s := range ports {
		r, err := parse(s)
		if err != nil {
			r = PortRule{Address: s, Host: -1}
		}
		r.Origin = goAPI
		rules[i] = r
	}
	return rules
}

func hostRules(hosts []string) []HostRule {
	rules := make([]HostRule, len(hosts))
	for i, s := range hosts {
		r, err := ParseHost(s)
		if err != nil {
			r = HostRule{Host: s}
		}
		r.Origin = goAPI
		rules[i] = r
	}
	return rules
}

// WithEnvMode sets which of the caller's variables pass.
func WithEnvMode(m EnvMode) Option { return func(p *Policy) { p.Env.Mode, p.Env.Origin = m, goAPI } }

// WithEnv sets a variable. The value is passed on byte by byte.
func WithEnv(name, value string) Option {
	return func(p *Policy) {
		m := merger{policy: *p}
		m.setVariable(EnvSet{Name: name, Value: value, Origin: goAPI})
		p.Env.Set = m.policy.Env.Set
	}
}

// PassEnv lets variables of the caller through. A name may end in "*".
func PassEnv(names ...string) Option {
	names = slices.Clone(names)
	return func(p *Policy) {
		for _, n := range names {
			p.Env.Pass = append(p.Env.Pass, EnvPass{Name: n, Origin: goAPI})
		}
	}
}

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

// WithTimeout limits the wall time.
func WithTimeout(d time.Duration) Option { return WithLimits(Limits{Time: d}) }

// AllowSocket lets unix sockets be connected to.
func AllowSocket(paths ...string) Option {
	paths = slices.Clone(paths)
	return func(p *Policy) {
		for _, s := range paths {
			e := parsePath(s)
			p.Sockets = append(p.Sockets, Socket{Path: e.Path, Optional: e.Optional, Origin: goAPI})
		}
	}
}

// WithBind shows the host's source at target; an empty target is the same path.
func WithBind(source, target string, readOnly bool) Option {
	return func(p *Policy) {
		e := parsePath(source)
		p.Binds = append(p.Binds, Bind{e.Path, target, readOnly, e.Optional, goAPI})
	}
}

// WithPersist keeps folders in cloche's own store; see [Policy].
func WithPersist(paths ...string) Option {
	paths = slices.Clone(paths)
	return func(p *Policy) {
		for _, s := range paths {
			p.Persist = append(p.Persist, Persist{Path: s, Origin: goAPI})
		}
	}
}

// WithRemap shows the workspace at another path inside.
func WithRemap(path string) Option {
	return func(p *Policy) { p.Remap, p.RemapOrigin = path, goAPI }
}

// WithTmp says whose /tmp it is.
func WithTmp(t Tmp) Option { return func(p *Policy) { p.Tmp, p.TmpOrigin = t, goAPI } }

// WithHome sets the value of $HOME inside and whether the real home folder is
// hidden.
func WithHome(value string, hidden bool) Option {
	return func(p *Policy) { p.Home = Home{Value: value, Hidden: hidden, Origin: goAPI} }
}

// WithHosts sets the text of /etc/hosts inside.
func WithHosts(text string) Option {
	return func(p *Policy) { p.Hosts, p.HostsOrigin = text, goAPI }
}

// WithBackend chooses a backend by name.
func WithBackend(name string) Option {
	return func(p *Policy) { p.Backend.Name, p.Backend.Origin = name, goAPI }
}

// WithFallback says what happens where no backend works.
func WithFallback(f Fallback) Option { return func(p *Policy) { p.Backend.Fallback = f } }

// WithRequire says what happens where a rule cannot be enforced.
func WithRequire(s Strength) Option { return func(p *Policy) { p.Require = s } }

// WithDenials says which refusals are on record.
func WithDenials(r Recording) Option {
	return func(p *Policy) { p.Denials, p.DenialsOrigin = r, goAPI }
}

// WithPrivileged keeps the caller's capabilities.
func WithPrivileged(on bool) Option {
	return func(p *Policy) { p.Privileged, p.PrivilegedOrigin = on, goAPI }
}

// WithEnabled switches the sandbox on or off. Off runs commands unchanged.
func WithEnabled(on bool) Option {
	return func(p *Policy) { p.Disabled, p.DisabledOrigin = !on, goAPI }
}
