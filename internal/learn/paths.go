package learn

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// pathNeed returns the need behind a denial about a file.
func (m *Machine) pathNeed(d *plan.Denial) Need {
	at := m.onHost(d.Path)
	n := Need{Kind: Read, Path: at, Why: d.Reason}
	if d.Op.Changes() {
		n.Kind = Write
	}
	switch {
	case m.locked(at):
		n.Class, n.Why = Closed, "cloche's own files"
		return n
	case len(d.Fix) == 0 && d.Narrower == nil:
		n.Class, n.Why = Closed, cmp.Or(n.Why, d.NoFix)
		return n
	case d.Rule == "paths.protect":
		n.Path, n.Class, n.Why = m.onHost(d.At), Sensitive, reasonOr(&d.Decision, "a rule protects it")
		n.Optional = !m.exists(n.Path)
		return n
	case hidden(d):
		n.Class, n.Why = Sensitive, reasonOr(&d.Decision, "a rule hides it")
		if n.Kind == Write && d.Op != plan.OpWrite {
			n.Path = m.onHost(d.At) // a hidden folder shows no file that could be written, so the folder is needed
		}
		return n
	case m.kept(&n):
		return n
	case n.Kind == Read:
		return m.readNeed(n)
	}
	return m.writeNeed(d.Op, n)
}

// kept reports whether a rule hides or protects the path, no matter which rule denied
// the operation. If so, it makes the need sensitive.
func (m *Machine) kept(n *Need) bool {
	if m.Judge == nil {
		return false
	}
	v := m.Judge(n.Path)
	if v.Access != policy.Hidden && (n.Kind == Read || v.Rule != "paths.protect") {
		return false
	}
	n.Class, n.Why = Sensitive, reasonOr(&v, "a rule keeps it")
	if n.Kind == Write && v.At != "" && v.At != "/" {
		n.Path = v.At
		n.Optional = !m.exists(n.Path)
	}
	return true
}

func reasonOr(d *plan.Decision, otherwise string) string {
	return cmp.Or(d.Reason, otherwise) + " (" + d.Origin.String() + ")"
}

// onHost returns the path of the host for a path of a denial. If the host has none, it
// returns the path by which rules name it.
func (m *Machine) onHost(inside string) string {
	if m.Plan != nil {
		if p, ok := m.Plan.HostPath(inside); ok {
			return p
		}
	}
	return judge.OnHost(m.Plan, inside)
}

func (m *Machine) exists(p string) bool {
	exists, _ := m.Stat(p)
	return exists
}

func (m *Machine) locked(p string) bool {
	return slices.ContainsFunc(m.Locked, func(dir string) bool { return dir != "" && pathx.Within(dir, p) })
}

// readNeed returns the need to read a path that no rule hides, but that no rule shows
// either.
func (m *Machine) readNeed(n Need) Need {
	n.Class, n.Why = Safe, ""
	if g, root, ok := m.group(n.Path); ok {
		n.Path, n.Why = root, g.what
		return n
	}
	if cut := cutVersion(n.Path); !m.broad(cut) {
		n.Path = cut
	}
	if m.broad(n.Path) {
		n.Class, n.Why = Plain, "a folder that holds all kinds of things"
	}
	return n
}

// writeNeed returns the need to write a path that can only be read. Writing an existing
// file needs only the file. Creating, replacing or removing one needs the folder around
// it.
func (m *Machine) writeNeed(op plan.Op, n Need) Need {
	n.Class, n.Why = Plain, ""
	if g, root, ok := m.group(n.Path); ok {
		n.Path, n.Why, n.Optional, n.Missing = root, g.what, true, !m.exists(root)
		switch {
		case g.cache:
			n.Class = Safe
		case g.dir != "" || m.runsCode(root):
			n.Class, n.Why = Sensitive, g.what+", which programs outside run"
		}
		return n
	}
	name := n.Path
	if op != plan.OpWrite {
		n.Path = path.Dir(name)
	}
	switch {
	case m.system(n.Path):
		n.Class, n.Why = Sensitive, "the system's own"
	case m.runsCode(name), m.runsCode(n.Path):
		n.Class, n.Why = Sensitive, "your shell or desktop runs programs from there"
		if m.broad(n.Path) && op == plan.OpMkdir {
			n.Path, n.Missing, n.Optional = name, true, true
		}
	case !m.broad(n.Path):
	case op == plan.OpMkdir && !m.broad(name):
		n.Path, n.Missing, n.Optional = name, true, true
	default:
		n.Class, n.Why = Sensitive, "to make "+m.short(name)+" takes all of "+m.short(n.Path)+"; make the file outside, and learn again"
	}
	return n
}

// noise reports whether the denial does not matter to the program.
func (m *Machine) noise(d *plan.Denial) bool {
	if !d.Op.Changes() {
		return false
	}
	// Python caches what it compiled beside the source, if it can.
	return strings.Contains(d.Path, "/__pycache__") || strings.HasSuffix(d.Path, ".pyc")
}

// cutVersion cuts a path before a part that is a version number, so that the rule also
// fits the next version.
func cutVersion(p string) string {
	parts := strings.Split(p, "/")
	for i := 3; i < len(parts)-1; i++ { // never less than two names below the root
		if isVersion(parts[i]) {
			return strings.Join(parts[:i], "/")
		}
	}
	return p
}

// isVersion reports whether a name is a version, as in v20.11.1, 3.11.7, go1.26 and
// node-v20.1.0.
func isVersion(name string) bool {
	digits := strings.IndexAny(name, "0123456789")
	if digits < 0 || strings.Count(name, ".") == 0 {
		return false
	}
	head := strings.TrimRight(name[:digits], "-_")
	number, _, _ := strings.Cut(name[digits:], "-")
	return strings.Trim(number, "0123456789.") == "" && strings.Contains(number, ".") && !strings.Contains(head, ".")
}
