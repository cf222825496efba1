package denials

import (
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A presetFinder finds the presets that allow what a run was denied. To merge presets takes
// a millisecond, so it merges those of all toolchains once, and only if something was denied.
type presetFinder struct {
	home string
	plan *plan.Plan // nil if it is not known
	// inForce are the presets of the run, as far as its plan shows them.
	inForce []string
	known   map[string]presetRules // by preset; those of all toolchains are "toolchains"
}

// presetRules are the rules of some presets, without those of the base below them.
type presetRules struct {
	paths []presetPath
	hosts []policy.HostRule
}

// A presetPath is a rule for a path, which is written out.
type presetPath struct {
	policy.PathRule
	at     string
	exists bool
}

func newPresetFinder(home string, p *plan.Plan) *presetFinder {
	return &presetFinder{home: home, plan: p, inForce: presetsOf(p), known: map[string]presetRules{}}
}

// presetsOf returns the presets that a plan was made with, as far as its lines show them, but
// for those that every base has.
func presetsOf(p *plan.Plan) []string {
	if p == nil {
		return nil
	}
	var names []string
	add := func(o policy.Origin) {
		name, ok := strings.CutPrefix(o.Source, "preset ")
		if ok && !o.Untrusted && !slices.Contains([]string{"workspace", "secrets", "sinks"}, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	add(p.Network.Origin)
	for i := range p.Network.Allow {
		add(p.Network.Allow[i].Origin)
	}
	for i := range p.Network.Forward {
		add(p.Network.Forward[i].Origin)
	}
	for i := range p.Paths {
		add(p.Paths[i].Origin)
	}
	for i := range p.Globs {
		add(p.Globs[i].Origin)
	}
	for i := range p.Env {
		add(p.Env[i].Origin)
	}
	for i := range p.Limits {
		add(p.Limits[i].Origin)
	}
	slices.Sort(names)
	return names
}

// find returns the preset that allows what was denied, or "". The preset of an agent opens
// its login too, so it is only for a run of that agent.
func (f *presetFinder) find(denied *plan.Denial) string {
	d := &denied.Decision
	if d.Outside || len(d.Fix) == 0 {
		return ""
	}
	if agent := agentOf(denied.Argv); agent != "" && f.allows(agent, f.rules(agent, agent), d) {
		return agent
	}
	var names []string
	for _, name := range policy.Presets() {
		if policy.PresetKind(name) == "toolchain" {
			names = append(names, name)
		}
	}
	all := f.rules("toolchains", names...)
	for _, name := range names {
		if f.allows(name, all, d) {
			return name
		}
	}
	return ""
}

// option returns the value of --preset that adds a preset to those of the run: the option
// takes the place of the presets that a file names.
func (f *presetFinder) option(preset string) string {
	return strings.Join(append(slices.Clone(f.inForce), preset), ",")
}

// rules returns the rules of presets, under a name for them.
func (f *presetFinder) rules(key string, presets ...string) presetRules {
	if r, ok := f.known[key]; ok {
		return r
	}
	var r presetRules
	if p, err := policy.FromPreset(presets...); err == nil {
		for _, rule := range p.Paths {
			if at, err := pathx.Expand(rule.Path, pathx.Vars{Home: f.home, Env: os.LookupEnv}); err == nil && rule.Origin.Layer == policy.LayerTool {
				_, err := os.Lstat(at)
				r.paths = append(r.paths, presetPath{rule, at, err == nil})
			}
		}
		r.hosts = p.Network.Allow
	}
	f.known[key] = r
	return r
}

// allows reports whether a preset of the rules allows what was denied. One that is in force
// does not, since it was denied anyway.
func (f *presetFinder) allows(preset string, r presetRules, d *plan.Decision) bool {
	if slices.Contains(f.inForce, preset) {
		return false
	}
	if d.Host != "" {
		return r.reaches(preset, d)
	}
	return r.writes(preset, d, f) || r.shows(preset, d, f)
}

// of reports whether a rule is one of the preset's own.
func of(preset string, o policy.Origin) bool { return o.Source == "preset "+preset }

// reaches reports whether a preset lets a host be reached. A rule that denies the host, and a
// mode that somebody chose, are stronger.
func (r *presetRules) reaches(preset string, d *plan.Decision) bool {
	if d.Rule != judge.RuleNetworkAllow && (d.Rule != judge.RuleNetworkMode || d.Origin.Layer >= policy.LayerTool) {
		return false
	}
	return slices.ContainsFunc(r.hosts, func(h policy.HostRule) bool {
		return of(preset, h.Origin) && strings.EqualFold(h.Host, d.Host) && (d.Port == 0 || h.Port == 0 || h.Port == d.Port)
	})
}

// wins reports whether a preset's rule for a path is stronger than the rule that denied, and
// than those of the plan that would deny then: the longer path wins, and then the higher layer.
func (f *presetFinder) wins(p *presetPath, d *plan.Decision) bool {
	loses := func(at string, o policy.Origin) bool {
		return pathx.Within(p.at, at) && (at != p.at || o.Layer >= policy.LayerTool || o.Untrusted)
	}
	if loses(d.At, d.Origin) {
		return false
	}
	return f.plan == nil || !slices.ContainsFunc(f.plan.Repeated, func(l plan.Path) bool {
		return pathx.Within(l.Path, d.Path) && loses(l.Path, l.Origin)
	})
}

// shows reports whether a preset shows a path that another one hides, by a rule for the
// path or a folder around it.
func (r *presetRules) shows(preset string, d *plan.Decision, f *presetFinder) bool {
	if d.Access != policy.Hidden {
		return false
	}
	return slices.ContainsFunc(r.paths, func(p presetPath) bool {
		return of(preset, p.Origin) && p.Access != policy.Hidden && !p.Protect && pathx.Within(p.at, d.Path) && f.wins(&p, d) &&
			(d.Op == plan.OpRead || p.Access == policy.Write && (p.exists || p.Create))
	})
}

// writes reports whether a preset makes a path writable. A rule that does not create its
// folder does nothing if the folder does not exist.
func (r *presetRules) writes(preset string, d *plan.Decision, f *presetFinder) bool {
	if d.Op == plan.OpRead || d.Op == plan.OpExec || d.Access == policy.Hidden || d.Protects() {
		return false
	}
	writes := false
	for i := range r.paths {
		p := &r.paths[i]
		switch {
		case !of(preset, p.Origin):
		case p.Protect && (pathx.Within(p.at, d.Path) || pathx.IsGlob(p.at) && pathx.MatchGlob(p.at, d.Path)):
			return false
		case p.Protect || p.Access != policy.Write || !p.exists && !p.Create || !f.wins(p, d):
		case pathx.Within(p.at, d.Path):
			writes = true
		case p.Create && d.Op == plan.OpMkdir && pathx.Within(d.Path, p.at) && !f.shared(d.Path):
			writes = true // the preset creates the folders around it, too
		}
	}
	return writes
}

// shared reports whether a folder is the home, or one of it in which many programs have
// theirs. Several presets would create it, so none is named.
func (f *presetFinder) shared(folder string) bool {
	return slices.Contains([]string{"", "/.cache", "/.config", "/.local", "/.local/share", "/.local/state"}, strings.TrimPrefix(folder, f.home))
}

// agentOf returns the preset for the agent that a command line starts, or "". Some agents
// are scripts.
func agentOf(argv []string) string {
	if len(argv) > 1 && slices.Contains([]string{"node", "python", "python3"}, path.Base(argv[0])) {
		argv = argv[1:]
	}
	if len(argv) == 0 {
		return ""
	}
	name := strings.TrimSuffix(path.Base(argv[0]), ".js")
	switch name {
	case "cn":
		name = "continue"
	case "cursor-agent":
		name = "cursor"
	}
	if policy.PresetKind(name) == "agent" {
		return name
	}
	return ""
}
