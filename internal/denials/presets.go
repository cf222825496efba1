package denials

import (
	"os"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// presetFor is the preset of a toolchain that opens what was refused, or empty. It
// opens all that the tool needs, where an option opens one folder or host.
func presetFor(d *plan.Denial, home string) string {
	if d.Outside || len(d.Fix()) == 0 {
		return ""
	}
	for _, name := range policy.Presets() {
		if policy.KindOfPreset(name) != policy.PresetToolchain {
			continue
		}
		if doc, err := policy.Preset(name); err == nil && (presetAllows(doc, d) || presetWrites(doc, d, home)) {
			return name
		}
	}
	return ""
}

// presetAllows reports whether the preset lets the host be reached. A rule that
// denies the host holds against it.
func presetAllows(doc *policy.Document, d *plan.Denial) bool {
	if d.Host == "" || d.Rule != plan.RuleNetworkAllow && d.Rule != plan.RuleNetworkMode || doc.Network == nil {
		return false
	}
	for _, e := range doc.Network.Allow {
		if strings.EqualFold(e.Host, d.Host) && (d.Port == 0 || e.Port.IsZero() || e.Port.First == d.Port) {
			return true
		}
	}
	return false
}

// presetWrites reports whether the preset makes the path writable. An entry that
// makes nothing counts if its folder is there: otherwise the preset may be in force
// already, and has not helped.
func presetWrites(doc *policy.Document, d *plan.Denial, home string) bool {
	if d.Host != "" || d.Op == plan.OpRead || d.Op == plan.OpExec || d.Access == policy.Hidden || d.Protects() || doc.Paths == nil {
		return false
	}
	covers := func(e *policy.PathEntry) bool {
		p, err := pathx.Expand(e.Path, pathx.Vars{Home: home, Env: os.LookupEnv})
		if err != nil {
			return false
		}
		if _, err := os.Lstat(p); err != nil && !e.Create {
			return false
		}
		if rest, ok := strings.CutPrefix(d.Path, home+"/"); ok && e.Create && d.Op == plan.OpMkdir && strings.Contains(rest, "/") && pathx.Within(d.Path, p) {
			return true // the preset makes the folders around it, too
		}
		return pathx.Within(p, d.Path)
	}
	for i := range doc.Paths.Protect {
		if covers(&doc.Paths.Protect[i]) {
			return false
		}
	}
	for i := range doc.Paths.Write {
		if covers(&doc.Paths.Write[i]) {
			return true
		}
	}
	return false
}
