package judge

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// The rules that no list of a policy has.
const (
	RuleCalls   = "system-call filter" // which no policy changes
	RuleSockets = "sockets"            // hides the sockets of the host
)

// A Fixer finds the edits of a policy that would allow what was denied.
type Fixer struct {
	// Plan is the plan that denied it, nil if it is not known.
	Plan *plan.Plan
	// Works reports whether an edit allows what was denied. A rule may stand against an edit
	// that looks right: only a plan with the edit tells. nil takes every edit to work.
	Works func(*plan.Decision, policy.Edit) bool
}

// Fix fills in what would allow a denied operation: Fix, Narrower, NoFix and Ask.
func (f Fixer) Fix(d *plan.Decision) {
	if d.Allowed {
		return
	}
	e, ok := f.pathEdit(d)
	d.Ask = f.ask(d, e, ok)
	if !ok || !stands(d, e.Value) && f.works(d, e) {
		d.Fix = d.Ask
	} else {
		d.Fix = f.below(d)
	}
	if d.Op == plan.OpCall && d.NoFix != "" { // it was recorded with the program in view
		return
	}
	d.NoFix = ""
	if len(d.Fix) == 0 {
		d.NoFix = noFix(d, e, ok)
	}
	d.Narrower = f.narrower(d)
}

// works reports whether an edit, which names the path as seen inside, allows it.
func (f Fixer) works(d *plan.Decision, e policy.Edit) bool {
	e.Value = OnHost(f.Plan, e.Value)
	return f.Allows(d, e)
}

// Allows reports whether an edit, which names the host's path, allows it, as far as is
// known.
func (f Fixer) Allows(d *plan.Decision, e policy.Edit) bool {
	return f.Works == nil || d.Outside || f.Works(d, e)
}

// ask returns the edits that a person can be asked for: for a path, the edit that allows
// its use.
func (f Fixer) ask(d *plan.Decision, e policy.Edit, ok bool) []policy.Edit {
	switch {
	case isNetwork(d):
		return netEdits(d)
	case d.Outside, d.Rule == RuleSockets && d.At == "":
		return nil
	case d.Rule == RuleSockets:
		return []policy.Edit{{Field: "sockets", Value: d.At}}
	case !ok:
		return nil
	}
	e.Value = OnHost(f.Plan, e.Value)
	return []policy.Edit{e}
}

// pathEdit is the edit that allows the use of a file, with its path as seen inside.
// ok is false where no rule for a path allows it.
func (f Fixer) pathEdit(d *plan.Decision) (e policy.Edit, ok bool) {
	switch {
	case isNetwork(d), d.Op == plan.OpCall, d.Rule == RuleSockets, strings.HasPrefix(d.Rule, "git."), isBuiltin(d):
		return e, false
	case d.Op == plan.OpRead, d.Op == plan.OpExec:
		return policy.Edit{Field: "paths.read", Value: d.Path}, true
	case d.Protects():
		return unprotect(d), true
	case f.isShared(d):
		return policy.Edit{Field: "persist", Value: d.Path}, d.Op == plan.OpMkdir
	}
	e = policy.Edit{Field: "paths.write", Value: opened(d)}
	return e, e.Value != "/"
}

// below returns the edit that opens, in what a rule protects, only what was attempted. The
// rule may stand against an option for its own path and not against one for a path below:
// only whoever can try it knows.
func (f Fixer) below(d *plan.Decision) []policy.Edit {
	e := policy.Edit{Field: "paths.write", Value: opened(d)}
	if f.Works == nil || d.Outside || !d.Protects() || e.Value == d.At || !pathx.Within(d.At, e.Value) || !f.works(d, e) {
		return nil
	}
	e.Value = OnHost(f.Plan, e.Value)
	return []policy.Edit{e}
}

// sharedFolders are those of a home in which every program has a file or folder of
// its own.
var sharedFolders = []string{"", "/.cache", "/.config", "/.local", "/.local/share", "/.local/state"}

// isShared reports whether a new name was refused in the caller's home, or in a folder
// of it that all programs share. To open that would be to open what all of them
// have. A folder can be one of the sandbox's own instead; a file has to be made
// outside.
func (f Fixer) isShared(d *plan.Decision) bool {
	if f.Plan == nil || f.Plan.Home == "" || d.Op != plan.OpMkdir && d.Op != plan.OpCreate {
		return false
	}
	rest, in := strings.CutPrefix(path.Dir(OnHost(f.Plan, d.Path)), f.Plan.Home)
	return in && slices.Contains(sharedFolders, rest)
}

// stands reports whether the rule holds against an option for the path. One that an
// option or the program itself gave is no weaker than another option: the same path
// twice gives the stricter, and a pattern holds against a path. An untrusted file takes
// away whatever is said elsewhere about the same path.
func stands(d *plan.Decision, path string) bool {
	same := path == d.At
	pattern := pathx.IsGlob(strings.TrimPrefix(d.Subject, "?"))
	switch {
	case d.Origin.Untrusted:
		return same && (!pattern || d.Rule == ruleHideFound)
	case d.Origin.Layer == policy.LayerCommand:
		return same || pattern
	}
	return false
}

// isBuiltin reports whether the rule is cloche's own, which no other opens: about its
// files, /proc, /sys and the like. That everything else is closed is no such rule.
func isBuiltin(d *plan.Decision) bool {
	return d.Origin.Layer == policy.LayerBuiltin && d.At != "/" && d.At != "" && d.Origin != plan.ReadsHost
}

// unprotect makes writable what a rule protects. It need not exist.
func unprotect(d *plan.Decision) policy.Edit {
	e := policy.Edit{Field: "paths.write", Value: d.At, Optional: d.Op != plan.OpWrite && d.Op != plan.OpUnlink}
	if e.Value == "" {
		e.Value = d.Path
	}
	return e
}

// opened is what has to be writable. A file that is there can be on its own;
// whatever makes or takes away a name changes the folder, and a hidden folder has
// nothing in it that could be written.
func opened(d *plan.Decision) string {
	switch {
	case d.Op == plan.OpWrite:
		return d.Path
	case d.Access == policy.Hidden && d.At != d.Path && d.At != "/" && d.At != "":
		return d.At
	}
	return path.Dir(d.Path)
}

// narrower returns an edit for the new file or folder alone, where Fix opens all of the
// folder around it, or has nothing because that would open what all programs have.
func (f Fixer) narrower(d *plan.Decision) *policy.Edit {
	if d.Op != plan.OpCreate && d.Op != plan.OpMkdir || d.Access == policy.Hidden {
		return nil
	}
	if !f.isWide(d.Fix) && (!f.isShared(d) || d.Outside || isBuiltin(d) || d.Protects()) {
		return nil
	}
	return &policy.Edit{Field: "paths.write", Value: OnHost(f.Plan, d.Path)}
}

// isWide reports whether a fix opens a whole home, or a folder of the system: one with at
// most two names, as /usr/share and, usually, homes are, or one that is the caller's
// home or contains it.
func (f Fixer) isWide(fix []policy.Edit) bool {
	if len(fix) == 0 || fix[0].Field != "paths.write" {
		return false
	}
	folder := fix[0].Value
	return strings.Count(folder, "/") <= 2 || f.Plan != nil && f.Plan.Home != "" && pathx.Within(folder, f.Plan.Home)
}

// noFix says why no option allows it, and what to do instead. It is empty if the
// rule's own reason says so. e is the edit that would allow the use of a file, if ok.
func noFix(d *plan.Decision, e policy.Edit, ok bool) string {
	switch {
	case strings.HasPrefix(d.Rule, "git."):
		return ""
	case d.Rule == RuleNetworkDeny:
		return "to allow it, change or leave out that rule, which no option overrules"
	case isNameOfLoopback(d) && forwardEdit(d) != nil:
		return "no option allows it by that name; with its port forwarded it is 127.0.0.1:" + strconv.Itoa(d.Port)
	case !ok:
		return "no option allows it"
	case !stands(d, e.Value):
		return "no single option allows it"
	case d.Origin.Untrusted:
		return "to allow it, change that rule: what a file that is not trusted takes away, no option gives back"
	}
	return "to allow it, change or leave out that rule, which no other option overrules"
}
