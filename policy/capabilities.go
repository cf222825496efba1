package policy

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// capabilities is a declaration {net, write_paths, read_paths, env}, which some workflow tools
// keep next to each command.
type capabilities struct {
	Net        *capabilitiesNet `json:"net,omitempty"`
	WritePaths []string         `json:"write_paths,omitempty"`
	ReadPaths  []string         `json:"read_paths,omitempty"`
	Env        *capabilitiesEnv `json:"env,omitempty"`
}

// capabilitiesNet is true, false or {"hosts": [rules]}.
type capabilitiesNet struct {
	Hosts []hostEntry `json:"hosts,omitempty"`
	all   *bool       // for true and false; nil for hosts
}

func (n *capabilitiesNet) fromScalar(tag, value string) error {
	if tag != "!!bool" {
		return faultf("", `must be true, false or {"hosts": […]}, not a text`)
	}
	all := isTrue(value)
	n.all = &all
	return nil
}

func (n *capabilitiesNet) mode() NetworkMode {
	switch {
	case n == nil || n.all != nil && *n.all:
		return NetworkHost
	case n.all != nil:
		return NetworkNone
	}
	return NetworkUser
}

// capabilitiesEnv is "scrubbed", "inherit" or {"vars": [names]}.
type capabilitiesEnv struct {
	Vars []string `json:"vars,omitempty"`
	mode EnvMode  // for the two names; EnvList means neither
}

func (e *capabilitiesEnv) fromScalar(_, value string) error {
	switch value {
	case "scrubbed":
		e.mode = EnvScrubbed
	case "inherit":
		e.mode = EnvInherit
	default:
		return faultf("", `%q is not one of scrubbed, inherit, {"vars": […]}`, value)
	}
	return nil
}

// ParseCapabilities reads a capability declaration as a document:
//
//   - net: true (the default) is the host's network; false is none; {"hosts": [rules]}
//     is a user-mode network with exactly these hosts.
//   - write_paths are writable. The working folder always is.
//   - read_paths, if not empty, are readable together with the system folders and
//     nothing else is. Otherwise the host is readable, without the secrets.
//   - env is "scrubbed" (the default), "inherit", or {"vars": [names]} for exactly
//     these variables.
//
// Paths are absolute, "~/x", "cwd" or any other form of a policy. A declaration is complete:
// it replaces the presets of lower layers.
func ParseCapabilities(name string, data []byte) (*Document, error) {
	var c capabilities
	origins, err := decodeInto(name, data, &c, func(*yaml.Node) bool { return false })
	if err != nil {
		return nil, err
	}
	b := &capabilityDocument{
		from: origins, declared: map[string]string{},
		doc: &document{Name: name, origins: map[string]Origin{"": origins[""]}},
	}
	b.build(c)
	errs := b.doc.faults()
	if c.Env != nil && c.Env.mode == EnvList && c.Env.Vars == nil {
		errs = append(errs, place(faultf(`write {"vars": ["NAME"]}`, "names no variables"), origins["env"].in(name), "env"))
	}
	for _, e := range errs {
		if declared, ok := b.declared[e.Field]; ok {
			e.Field = declared
		}
	}
	if err := joinErrors(errs); err != nil {
		return nil, err
	}
	return &Document{content: *b.doc}, nil
}

// A capabilityDocument builds a document from a declaration. Each field of the document gets
// the position of the declaration's field that it was made from.
type capabilityDocument struct {
	from map[string]Origin
	doc  *document
	// declared maps fields of the document to the declaration's names for them.
	declared map[string]string
}

func (b *capabilityDocument) build(c capabilities) {
	mode, reads, env := c.Net.mode(), ReadsHost, EnvScrubbed
	var hosts []hostEntry
	if c.Net != nil {
		hosts = c.Net.Hosts
	}
	if len(c.ReadPaths) > 0 {
		reads = ReadsSystem
	}
	d := b.doc
	d.Presets = []string{"secrets"}
	d.Network, d.Reads, d.Env = &networkSection{Mode: &mode, Allow: hosts}, &reads, &envSection{Policy: &env}
	if c.Env != nil {
		env, d.Env.Pass = c.Env.mode, c.Env.Vars
	}
	b.place("network", "net")
	for i := range hosts {
		b.place(indexed("network.allow", i), indexed("net.hosts", i))
	}
	b.place("reads", "read_paths")
	b.place("env", "env")
	for i := range d.Env.Pass {
		b.place(indexed("env.pass", i), indexed("env.vars", i))
	}
	b.paths(c)
}

// paths fills the path lists. Writable paths are also readable, so a path in both lists counts
// as writable.
func (b *capabilityDocument) paths(c capabilities) {
	p := &pathsSection{}
	b.doc.Paths = p
	written := []string{"cwd"}
	for i, path := range c.WritePaths {
		b.place(indexed("paths.write", i), indexed("write_paths", i))
		p.Write = append(p.Write, parsePath(path))
		written = append(written, samePath(path))
	}
	for i, path := range c.ReadPaths {
		if !slices.Contains(written, samePath(path)) {
			b.place(indexed("paths.read", len(p.Read)), indexed("read_paths", i))
			p.Read = append(p.Read, parsePath(path))
		}
	}
	p.Write = append(p.Write, PathRule{Path: "cwd", Reason: "the working folder is always writable"})
}

func (b *capabilityDocument) place(to, from string) {
	if o, ok := b.from[from]; ok {
		b.doc.origins[to], b.declared[to] = o, from
	}
}
