package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche/internal/policyfile"
	"github.com/cloche-dev/cloche/policy"
)

func (a *app) policyShow() *cobra.Command {
	var s sessionFlags
	var all bool
	c := &cobra.Command{
		Use:   "show [flags]",
		Short: "Print the merged policy, with the origin of each rule",
		Long: `Print the merged policy as a policy file, with the origin of each rule: your file,
the project's, or a flag. For presets it prints the name and the number of rules;
--all prints the rules too. Paths are as written; cloche explain shows what they
mean on this machine. Values of variables are left out. JSON always has every
rule.`,
		Example: "  cloche policy show\n  cloche policy show --all\n  cloche policy show --preset strict --json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			l, err := s.load()
			if err != nil {
				return err
			}
			rules := rulesOf(l.Policy)
			if a.json {
				return a.print(map[string]any{"rules": rules}, nil)
			}
			if !all {
				rules = ownRules(rules)
			}
			return a.printYAML(rules)
		},
	}
	s.add(c)
	boolFlag(c.Flags(), &all, "all", groupOutput, "print the rules of presets, too")
	a.jsonFlag(c, "print JSON")
	return c
}

// A rule is one setting of a merged policy, by its name in a file.
type rule struct {
	Field  string        `json:"field"`
	Value  any           `json:"value"`
	Origin policy.Origin `json:"origin"`
	// item: the field is a list, and this is one entry of it.
	item bool
	// note is printed behind it.
	note string
}

type ruleList []rule

func (l *ruleList) set(field string, value any, o policy.Origin) {
	*l = append(*l, rule{Field: field, Value: value, Origin: o})
}

func (l *ruleList) add(field string, value any, o policy.Origin) {
	*l = append(*l, rule{Field: field, Value: value, Origin: o, item: true})
}

// rulesOf lists a policy in the order of a file.
func rulesOf(p policy.Policy) []rule {
	var l ruleList
	l.set("version", 1, policy.Origin{})
	l.set("presets", []string{}, policy.Origin{})
	l.set("enabled", !p.Disabled, p.DisabledOrigin)
	l.set("reads", p.Reads, p.ReadsOrigin)
	l.paths(p.Paths)
	for _, e := range p.Exempt {
		l.add("paths.protect_unless_under", e, e.Origin)
	}
	l.places(p)
	l.network(p.Network)
	l.secrets(p)
	l.env(p.Env)
	for _, s := range p.Sockets {
		l.add("sockets", s, s.Origin)
	}
	l.bus(p.Bus)
	l.limits(p.Limits)
	l.enforcement(p)
	for _, t := range p.Tests {
		l.add("tests", t, t.Origin)
	}
	return l
}

// ownRules are the rules that files and flags gave, and in place of those that presets
// gave the presets' names, with how many each has.
func ownRules(rules []rule) []rule {
	counts := map[string]int{}
	var own []rule
	for _, r := range rules {
		switch name, ok := presetOf(r.Origin); {
		case ok:
			counts[name]++
		case r.Field != "presets":
			own = append(own, r)
		}
	}
	presets := []rule{{Field: "presets", Value: []string{}}}
	if len(counts) > 0 {
		presets = nil
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		presets = append(presets, rule{Field: "presets", Value: name, item: true, note: plural(uint64(counts[name]), "rule")})
	}
	return slices.Insert(own, 1, presets...) // behind the version
}

// presetOf is the preset that a rule comes from.
func presetOf(o policy.Origin) (name string, ok bool) {
	name, ok = strings.CutPrefix(o.Source, "preset ")
	return name, ok && o.Layer <= policy.LayerTool
}

// paths lists the rules by what they allow, each list in its order.
func (l *ruleList) paths(rules []policy.PathRule) {
	for _, name := range []string{"write", "read", "hide", "hide_found", "protect"} {
		for i, r := range rules {
			if listOf(r) == name && !overruled(rules, i) {
				l.add("paths."+name, r, r.Origin)
			}
		}
	}
}

// overruled reports whether a rule of a higher layer is about the very path of
// the i-th rule: as one file, the two would contradict each other.
func overruled(rules []policy.PathRule, i int) bool {
	r := &rules[i]
	return slices.ContainsFunc(rules, func(o policy.PathRule) bool {
		return o.Path == r.Path && o.Origin.Layer > r.Origin.Layer && !o.Origin.Untrusted && !o.Found && !r.Found
	})
}

func listOf(r policy.PathRule) string {
	switch {
	case r.Protect:
		return "protect"
	case r.Found:
		return "hide_found"
	case r.Access == policy.Write:
		return "write"
	case r.Access == policy.Read:
		return "read"
	default:
		return "hide"
	}
}

func (l *ruleList) places(p policy.Policy) {
	for _, b := range p.Binds {
		l.add("binds", b, b.Origin)
	}
	for _, s := range p.Persist {
		l.add("persist", s.Path, s.Origin)
	}
	if p.Remap != "" {
		l.set("remap", p.Remap, p.RemapOrigin)
	}
	l.set("tmp", p.Tmp, p.TmpOrigin)
	if p.Review != "" {
		l.set("review", p.Review, p.ReviewOrigin)
	}
	if p.Denials != policy.RecordUsual {
		l.set("denials", p.Denials, p.DenialsOrigin)
	}
	if p.Cold {
		l.set("warm", false, p.ColdOrigin)
	}
	if p.Home.Value != "" {
		l.set("home.value", p.Home.Value, p.Home.Origin)
	}
	l.set("home.visible", !p.Home.Hidden, p.Home.Origin)
	if p.Hosts != "" {
		l.set("hosts", p.Hosts, p.HostsOrigin)
	}
}

func (l *ruleList) network(n policy.Network) {
	l.set("network.mode", n.Mode, n.Origin)
	if n.Link != policy.LinkAuto {
		l.set("network.link", n.Link, n.LinkOrigin)
	}
	for _, h := range n.Allow {
		l.add("network.allow", h, h.Origin)
	}
	for _, h := range n.Deny {
		l.add("network.deny", h, h.Origin)
	}
	for _, p := range n.Publish {
		l.add("network.publish", p.String(), p.Origin)
	}
	for _, p := range n.Forward {
		l.add("network.forward", p.String(), p.Origin)
	}
}

func (l *ruleList) secrets(p policy.Policy) {
	for _, s := range p.Secrets {
		l.add("secrets", s, s.Origin)
	}
}

func (l *ruleList) env(e policy.Env) {
	l.set("env.policy", e.Mode, e.Origin)
	for _, p := range e.Pass {
		l.add("env.pass", p.Name, p.Origin)
	}
	for _, s := range e.Set {
		l.set("env.set."+s.Name, "…", s.Origin)
	}
}

func (l *ruleList) limits(limits policy.Limits) {
	for _, e := range []struct {
		name  string
		value int64
	}{
		{"time", int64(limits.Time)}, {"output", limits.Output}, {"memory", limits.Memory},
		{"processes", limits.Processes}, {"open_files", limits.OpenFiles}, {"file_size", limits.FileSize},
	} {
		if e.value != 0 {
			l.set("limits."+e.name, policy.FormatLimit(e.name, e.value), limits.Origin[e.name])
		}
	}
}

func (l *ruleList) enforcement(p policy.Policy) {
	b := p.Backend
	l.set("allow_privileged", p.Privileged, p.PrivilegedOrigin)
	l.set("require", p.Require, policy.Origin{})
	if b.Name != "" {
		l.set("backend", b.Name, b.Origin)
	}
	l.set("fallback", b.Fallback, policy.Origin{})
	if b.BwrapPath != "" {
		l.set("backends.bwrap.path", b.BwrapPath, policy.Origin{})
	}
	if len(b.BwrapArgs) > 0 {
		l.set("backends.bwrap.extra_args", b.BwrapArgs, policy.Origin{})
	}
}

// printYAML prints the rules as a policy file, each with its origin behind it.
func (a *app) printYAML(rules []rule) error {
	lines := make([]policyfile.Line, len(rules))
	for i, r := range rules {
		lines[i] = policyfile.Line{Field: r.Field, Item: r.item, Value: r.Value, Comment: comment(r)}
	}
	text, err := policyfile.Text(lines)
	if err != nil {
		return err
	}
	return a.printText(text)
}

func comment(r rule) string {
	if r.note != "" || r.Origin.IsZero() {
		return r.note
	}
	return r.Origin.String()
}
