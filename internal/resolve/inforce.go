package resolve

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// SandboxVariable is an environment variable that names the backend to commands in a sandbox.
const SandboxVariable = "CLOCHE_SANDBOX"

// inForce is the origin of the variable and the file that show a sandbox its own policy.
var inForce = policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: the policy in force"}

// nameSandbox sets SandboxVariable, unless the policy lists all variables.
func (b *builder) nameSandbox(vars map[string]plan.Var) {
	if _, set := vars[SandboxVariable]; !set && b.req.Backend != "" && b.policy.Env.Mode != policy.EnvList {
		vars[SandboxVariable] = plan.Var{Name: SandboxVariable, Value: b.req.Backend, Origin: inForce}
	}
}

// tellCommand adapts the plan to the backend that will enforce it. With mounts, the command
// sees the policy as a read-only file. Without mounts, sockets keep their host paths.
func (b *builder) tellCommand() {
	if b.req.NoMounts {
		b.leaveSockets()
		return
	}
	if b.req.Backend == "" {
		return
	}
	b.showText(wellknown.PolicyFile, describe(b.plan, b.req.Backend), inForce)
	b.showSecrets()
	b.showCertificates()
	for path, text := range b.req.Files {
		b.showText(path, text, policy.Origin{Layer: policy.LayerCommand, Source: "WithFiles"})
	}
}

// showText adds a file with a text to the plan. This is only possible in an empty folder that
// cloche provides.
func (b *builder) showText(path, text string, origin policy.Origin) {
	p := b.plan
	i, found := slices.BinarySearchFunc(p.Paths, path, func(e plan.Path, path string) int { return strings.Compare(e.Path, path) })
	if around := p.Lookup(path); found || around.Content != plan.Empty || around.Access == policy.Write {
		return
	}
	p.Paths = slices.Insert(p.Paths, i, plan.Path{Path: path, Kind: hostfs.File, Access: policy.Read, Content: plan.Text, Text: text, Origin: origin})
}

// leaveSockets is for a backend that cannot show a socket at another path. Variables then name
// the host's paths, and so does the line of a socket whose variable is its path.
func (b *builder) leaveSockets() {
	p := b.plan
	moved := map[string]string{}
	for i := range p.Sockets {
		s := &p.Sockets[i]
		if s.Variable == "" {
			continue
		}
		b.setVariable(s.Variable, s.HostValue)
		if s.HostValue == s.Source {
			moved[s.Path] = s.Source
			s.Path, s.Value = s.Source, s.Source
		}
	}
	if p.Bus != nil {
		b.setVariable(wellknown.BusVariable, p.Bus.Address)
	}
	for i := range p.Paths {
		if at, ok := moved[p.Paths[i].Path]; ok {
			p.Paths[i].Path = at
		}
	}
	slices.SortFunc(p.Paths, byPath)
}

func (b *builder) setVariable(name, value string) {
	for i := range b.plan.Env {
		if b.plan.Env[i].Name == name {
			b.plan.Env[i].Value = value
		}
	}
}

// A policyText is a plan as text, with a line for each rule.
type policyText struct{ text []byte }

// policyTexts are buffers for reuse: each run writes a text of some 13 KB.
var policyTexts = sync.Pool{New: func() any { return new(policyText) }}

// line adds the words and, unless it is zero, the origin of the rule.
func (t *policyText) line(o policy.Origin, words ...string) {
	for i, w := range words {
		if i > 0 {
			t.text = append(t.text, ' ')
		}
		t.text = append(t.text, w...)
	}
	if !o.IsZero() {
		t.text = o.Append(append(t.text, "\t# "...))
	}
	t.text = append(t.text, '\n')
}

// describe writes a plan as text for the command that it confines: a line for each rule, with
// the rule's origin. It contains neither values of variables nor arguments.
func describe(p *plan.Plan, name string) string {
	t := policyTexts.Get().(*policyText)
	defer policyTexts.Put(t)
	t.text = t.text[:0]
	t.line(policy.Origin{}, "sandbox", name)
	t.line(policy.Origin{}, "workspace", visible(p.Inside))
	if p.Review != nil {
		t.line(p.Review.Origin, "review", p.Review.Name)
	}
	t.network(&p.Network)
	for i := range p.Secrets {
		t.line(p.Secrets[i].Origin, "secret", visible(p.Secrets[i].String()))
	}
	t.files(p)
	t.sockets(p)
	for i := range p.Env {
		t.line(p.Env[i].Origin, "variable", visible(p.Env[i].Name))
	}
	for _, l := range p.Limits {
		t.line(l.Origin, "limit", l.Name, strconv.FormatInt(l.Value, 10))
	}
	return string(t.text)
}

// files writes the rules for paths.
func (t *policyText) files(p *plan.Plan) {
	for i := range p.Paths {
		e := &p.Paths[i]
		t.line(e.Origin, e.Access.String(), visible(e.Path))
	}
	for i := range p.Globs {
		g := &p.Globs[i]
		t.line(g.Origin, g.Access.String(), visible(g.Pattern))
	}
}

// sockets writes the sockets that the command may connect to.
func (t *policyText) sockets(p *plan.Plan) {
	for _, s := range p.Sockets {
		t.line(s.Origin, "socket", visible(s.Path))
	}
	if p.Datagrams != nil {
		t.line(*p.Datagrams, "socket", policy.Datagrams)
	}
	if p.Bus != nil {
		t.line(p.Bus.Origin, "bus", visible(p.Bus.Path))
		for _, r := range p.Bus.Rules {
			t.line(r.Origin, "bus", string(r.Access), visible(r.String()))
		}
	}
}

// network writes the network rules, in the words of a policy.
func (t *policyText) network(n *plan.Network) {
	t.line(n.Origin, "network", n.Mode.String())
	for _, h := range n.Allow {
		t.line(h.Origin, "allow", visible(h.String()))
	}
	for _, h := range n.Deny {
		t.line(h.Origin, "deny", visible(h.String()))
	}
	for _, p := range n.Publish {
		t.line(p.Origin, "publish", p.String())
	}
	for _, p := range n.Forward {
		t.line(p.Origin, "forward", p.String())
	}
}

// visible quotes a name that could break a line or be mistaken for another one.
func visible(s string) string {
	if isPlain(s) {
		return s
	}
	if q := strconv.Quote(s); len(q) != len(s)+2 {
		return q
	}
	return s
}

// isPlain reports whether a text consists of ASCII characters that quoting does not change.
// Nearly all texts do.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
