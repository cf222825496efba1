package engine

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/bwrap"
	"github.com/cloche-dev/cloche/internal/backends/native"
	"github.com/cloche-dev/cloche/internal/backends/none"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// SandboxVariable names the backend to the commands in a sandbox. It is there for
// programs that want to behave accordingly; nothing is trusted for it.
const SandboxVariable = "CLOCHE_SANDBOX"

// inForce is the origin of what shows a sandbox its own policy.
var inForce = policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: the policy in force"}

// A notShown says why there is no policy in force to be read.
type notShown string

func (e notShown) Error() string { return string(e) }

func (notShown) Is(target error) bool { return target == os.ErrNotExist }

// InForce returns the policy that this process is held to, as text, if it runs
// inside of a sandbox of cloche that shows it. The error is os.ErrNotExist, by
// errors.Is, if it does not: the backend landlock has no mounts to show it with, and a policy
// that opens the host's /run leaves no place for it.
func InForce() (string, error) {
	if !host.Nested() {
		if name := os.Getenv(SandboxVariable); name != "" {
			return "", notShown("the sandbox around this process (" + name + ") does not show its policy; outside of it, cloche explain prints it")
		}
		return "", notShown("this is not inside a sandbox of cloche, so no policy is in force; cloche explain prints the policy that a command would have")
	}
	text, err := os.ReadFile(host.InForceFile)
	return string(text), err
}

// showPolicy adds to a plan that a backend is about to compile what tells the
// command about it: a variable, and a file that cannot be changed. The plan has
// just been made and is nobody else's.
func (e *Engine) showPolicy(p *plan.Plan, name string) {
	if name == none.Name {
		return
	}
	e.nameSandbox(p, name)
	if !mounts(name) {
		return
	}
	showText(p, host.InForceFile, describe(p, name), inForce)
	for path, text := range e.config.Files {
		showText(p, path, text, policy.Origin{Layer: policy.LayerCommand, Source: "WithFiles"})
	}
}

// showText adds a file with a text to a plan. It can be put only where a folder of the
// sandbox's own is.
func showText(p *plan.Plan, path, text string, origin policy.Origin) {
	i, found := slices.BinarySearchFunc(p.Paths, path, func(e plan.Path, path string) int { return strings.Compare(e.Path, path) })
	if around := p.Lookup(path); found || around.Content != plan.Empty || around.Access == policy.Write {
		return
	}
	p.Paths = slices.Insert(p.Paths, i, plan.Path{Path: path, Kind: host.File, Access: policy.Read, Content: plan.Text, Text: text, Origin: origin})
}

// mounts reports whether a backend is known to be able to show a file that the
// host does not have.
func mounts(name string) bool { return name == native.Name || name == bwrap.Name }

// nameSandbox sets the variable, unless the policy lists all variables.
func (e *Engine) nameSandbox(p *plan.Plan, name string) {
	set := slices.ContainsFunc(p.Env, func(v plan.Var) bool { return v.Name == SandboxVariable })
	if name != none.Name && e.config.Policy.Env.Mode != policy.EnvList && !set {
		p.Env = append(p.Env, plan.Var{Name: SandboxVariable, Value: name, Origin: inForce})
	}
}

// A policyText is a plan as it is written down, a line for each rule.
type policyText struct{ text []byte }

// policyTexts are texts that are done with: each run makes one, of some 13 KB.
var policyTexts = sync.Pool{New: func() any { return new(policyText) }}

// line adds the words and, unless it is zero, where the rule comes from.
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

// describe writes a plan down for the command that it confines: a line for each
// rule, with the rule's origin. Neither values of variables nor arguments are in
// it.
func describe(p *plan.Plan, name string) string {
	t := policyTexts.Get().(*policyText)
	defer policyTexts.Put(t)
	t.text = t.text[:0]
	t.line(policy.Origin{}, "sandbox", name)
	t.line(policy.Origin{}, "workspace", visible(p.Inside))
	t.network(&p.Network)
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

// files writes down what may be done with paths.
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

// sockets writes down what may be connected to.
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

// network writes down what may be reached, in the words of a policy.
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

// visible quotes a name that could break a line or be taken for another.
func visible(s string) string {
	if isPlain(s) {
		return s
	}
	if q := strconv.Quote(s); len(q) != len(s)+2 {
		return q
	}
	return s
}

// isPlain reports whether a text is of ASCII characters that mean themselves, as
// nearly all are: to quote it would change nothing.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// covered are the gaps of the backend landlock that another sandbox around it
// closes towards the machine.
var covered = []string{"hosts", "tmp", "paths.metadata", "network.interfaces", "processes"}

// coverGaps marks the gaps that a sandbox around this one covers. A sandbox in
// another one cannot have namespaces, and what it cannot do without is still
// denied to everything in here: other processes are those of the outer sandbox, not
// of the machine. So a strict policy runs with these gaps, which are reported as
// any others. Gaps that are about the policy's own paths stay as they are.
func coverGaps(l *backend.Launch, snap *host.Snapshot) {
	if len(l.Gaps) == 0 || !snap.Live() || !host.Nested() {
		return
	}
	for i := range l.Gaps {
		if g := &l.Gaps[i]; slices.Contains(covered, g.Rule) && !g.Optional {
			g.Optional = true
			g.Reason += "; the sandbox around this one keeps it from the machine"
			g.Fix = ""
		}
	}
}
