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

// presetFor is the preset of a toolchain or an agent that opens what was refused, or
// empty. It opens all that the tool needs, where an option opens one folder or host. The
// preset of an agent opens its login, too: it is for that agent alone.
func presetFor(refused *plan.Denial, home string) string {
	d := &refused.Decision
	if d.Outside || len(d.Fix) == 0 {
		return ""
	}
	agent := agentOf(refused.Argv)
	if agent != "" {
		if p, err := policy.FromPreset(agent); err == nil && (presetAllows(p, agent, d) || presetWrites(p, agent, d, home) || presetShows(p, agent, d, home)) {
			return agent
		}
	}
	for _, name := range policy.Presets() {
		if policy.PresetKind(name) != "toolchain" {
			continue
		}
		if p, err := policy.FromPreset(name); err == nil && (presetAllows(p, name, d) || presetWrites(p, name, d, home)) {
			return name
		}
	}
	return ""
}

// agentOf is the preset for the agent that a command line starts, or empty. Some agents
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

// presetShows reports whether the preset opens a path that another one hides, by a rule
// about the path or a folder around it.
func presetShows(p policy.Policy, preset string, d *plan.Decision, home string) bool {
	if d.Host != "" || d.Access != policy.Hidden {
		return false
	}
	return slices.ContainsFunc(p.Paths, func(r policy.PathRule) bool {
		if r.Origin.Source != "preset "+preset || r.Access == policy.Hidden || r.Protect {
			return false
		}
		at, err := pathx.Expand(r.Path, pathx.Vars{Home: home, Env: os.LookupEnv})
		return err == nil && pathx.Within(at, d.Path) && (d.Op == plan.OpRead || r.Access == policy.Write)
	})
}

// presetAllows reports whether the preset lets the host be reached. A rule that
// denies the host holds against it.
func presetAllows(p policy.Policy, preset string, d *plan.Decision) bool {
	if d.Host == "" || d.Rule != judge.RuleNetworkAllow && d.Rule != judge.RuleNetworkMode {
		return false
	}
	return slices.ContainsFunc(p.Network.Allow, func(r policy.HostRule) bool {
		return r.Origin.Source == "preset "+preset && strings.EqualFold(r.Host, d.Host) && (d.Port == 0 || r.Port == 0 || r.Port == d.Port)
	})
}

// presetWrites reports whether the preset makes the path writable. A rule that does
// not create its folder counts only if the folder exists: otherwise the preset may be
// in force already, and has not helped.
func presetWrites(p policy.Policy, preset string, d *plan.Decision, home string) bool {
	if d.Host != "" || d.Op == plan.OpRead || d.Op == plan.OpExec || d.Access == policy.Hidden || d.Protects() {
		return false
	}
	covers := func(r *policy.PathRule) bool {
		p, err := pathx.Expand(r.Path, pathx.Vars{Home: home, Env: os.LookupEnv})
		if err != nil {
			return false
		}
		if _, err := os.Lstat(p); err != nil && !r.Create {
			return false
		}
		if rest, ok := strings.CutPrefix(d.Path, home+"/"); ok && r.Create && d.Op == plan.OpMkdir && strings.Contains(rest, "/") && pathx.Within(d.Path, p) {
			return true // the preset creates the folders around it, too
		}
		return pathx.Within(p, d.Path)
	}
	writes := false
	for i := range p.Paths {
		r := &p.Paths[i]
		if r.Origin.Source != "preset "+preset || !r.Protect && r.Access != policy.Write || !covers(r) {
			continue
		}
		if r.Protect {
			return false
		}
		writes = true
	}
	return writes
}
