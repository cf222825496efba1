// Package learn turns the denials of a command into the rules that it needs, as a
// policy file. The rules are few, and each is as narrow as possible while still useful
// for later runs.
//
// The package decides nothing. The class of a [Need] says what may be given to the next
// run at once and what needs a person's consent; the caller asks that person. The
// command chooses all names in a denial, such as those of programs and files. Whatever
// they are, the file that [File.Text] writes contains no more than the rules.
package learn

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Kind is what a rule would open.
type Kind string

// The kinds, in the words of a policy file.
const (
	Write   Kind = "write"
	Read    Kind = "read"
	Socket  Kind = "socket"
	Connect Kind = "connect"
	Forward Kind = "forward"
)

// A Class says whose consent a need requires.
type Class int

// The classes, the most harmless first.
const (
	// Safe is given to the next run without a question: reading a path that no rule hides,
	// and the caches of well-known tools.
	Safe Class = iota
	// Plain is written to the file. The next run gets it only if a person agrees, because
	// it could change the user's files or send data away.
	Plain
	// Sensitive is neither written nor given unless a person agrees to it by name: secrets,
	// files that programs outside run, the system, the local network.
	Sensitive
	// Closed means that no rule of a policy opens it.
	Closed
)

// A Need is one thing that a command was denied, and the rule that would allow it.
type Need struct {
	Kind Kind
	// Path is a path of the host, clean and absolute, for Write, Read and Socket. An
	// abstract socket is "@name".
	Path string
	// Host is the rule of a Connect, in the form of policy.ParseHost, or the port of a
	// Forward.
	Host  string
	Class Class
	// Missing says that Path does not exist: it is a folder that has to be created first.
	Missing bool
	// Optional says that the rule is valid even if Path does not exist.
	Optional bool
	// Why says what Path is, or why the need is sensitive or closed.
	Why string
	// Programs are the names of the programs that were denied.
	Programs []string
	// alone says that a rule for the folder around Path would not allow Path.
	alone bool
}

// Subject returns the path or the host.
func (n *Need) Subject() string {
	if n.Kind == Connect || n.Kind == Forward {
		return n.Host
	}
	return n.Path
}

// Machine has the facts about the machine that are needed to judge a path.
type Machine struct {
	Home, Workspace string
	// Locked are cloche's own folders, which no rule opens.
	Locked []string
	// Stat reports whether a path of the host exists and whether it is a folder.
	Stat func(path string) (exists, folder bool)
	// Judge returns the decision about a path if everything else were writable. It finds
	// rules that hide a secret or protect a file, even if another rule denied the operation
	// first, as when the whole home is hidden. If it is nil, there are no such rules.
	Judge func(path string) plan.Decision
	// Plan is the plan of the run. If it is nil, paths inside are the same as on the host.
	Plan *plan.Plan
	// Allows reports whether an edit of the policy would allow what was denied. If it is
	// nil, every edit is assumed to.
	Allows func(*plan.Denial, policy.Edit) bool
}

// Needs returns the rules that would have allowed what was denied. They are folded (see
// Fold) and sorted, so the result does not depend on the order of the denials.
func (m *Machine) Needs(denied []plan.Denial) []Need {
	var all []Need
	for i := range denied {
		d := &denied[i]
		if n, ok := m.need(d); ok {
			if d.Program != "" {
				n.Programs = []string{path.Base(d.Program)}
			}
			all = append(all, n)
		}
	}
	return m.Fold(all)
}

func (m *Machine) need(d *plan.Denial) (Need, bool) {
	switch d.Op {
	case plan.OpConnect, plan.OpResolve, plan.OpRequest:
		n, ok := netNeed(d)
		return m.expressed(n), ok
	}
	if !strings.HasPrefix(d.Path, "/") || m.noise(d) {
		return Need{}, false
	}
	return m.closedUnlessAllowed(d, m.expressed(m.pathNeed(d))), true
}

// closedUnlessAllowed closes a need whose rule would not allow what was denied, according to
// Allows. If the rule is for more than what was denied, the narrower edit of the denial may
// still allow it and is used instead. A need whose path has to be created first cannot be
// checked.
func (m *Machine) closedUnlessAllowed(d *plan.Denial, n Need) Need {
	if n.Class == Closed || n.Missing {
		return n
	}
	e := n.edit()
	if !m.allows(d, e) {
		if len(d.Fix) != 1 || d.Fix[0].Field != e.Field || d.Fix[0].Value == n.Path || !pathx.Within(n.Path, d.Fix[0].Value) || !m.writable(d.Fix[0].Value) {
			n.Class, n.Why = Closed, d.NoFix
			if len(d.Fix) > 0 {
				n.Why = "no single option allows it"
			}
			n.Why = cmp.Or(n.Why, d.Because())
			return n
		}
		n.Path, n.Optional = d.Fix[0].Value, d.Fix[0].Optional
	}
	around := Need{Kind: n.Kind, Path: path.Dir(n.Path)}
	n.alone = foldKey(&n) != "" && !m.staysApart(&n) && !m.allows(d, around.edit())
	return n
}

func (m *Machine) allows(d *plan.Denial, e policy.Edit) bool {
	return m.Allows == nil || m.Allows(d, e)
}

// edit returns the rule for a path as an edit of the policy.
func (n *Need) edit() policy.Edit {
	return policy.Edit{Field: listOf(n.Kind), Value: n.Path, Optional: n.Optional}
}

// Fold merges equal needs, replaces several files of one folder by the folder, and
// removes needs that another one covers.
func (m *Machine) Fold(needs []Need) []Need {
	folded := m.toFolders(merge(needs))
	out := slices.DeleteFunc(slices.Clone(folded), func(n Need) bool {
		return slices.ContainsFunc(folded, func(other Need) bool { return replaces(&other, &n) })
	})
	slices.SortFunc(out, func(a, b Need) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Subject(), b.Subject()))
	})
	return out
}

// replaces reports whether need n makes other unnecessary. A folder does so for the
// paths in it. For hosts the narrower rule replaces the wider one: a name is looked up
// before it is connected to, and the rule for the port allows both.
func replaces(n, other *Need) bool {
	if n.Kind == Connect {
		return other.Covers(n) && !n.Covers(other)
	}
	return n.Covers(other) && !other.Covers(n)
}

// merge joins equal needs. The joined need has the stricter class.
func merge(needs []Need) []Need {
	var out []Need
	for _, n := range needs {
		i := slices.IndexFunc(out, func(o Need) bool { return o.Kind == n.Kind && o.Subject() == n.Subject() })
		if i < 0 {
			n.Programs = slices.Clone(n.Programs)
			out = append(out, n)
			continue
		}
		o := &out[i]
		if n.Class > o.Class {
			o.Class, o.Why = n.Class, n.Why
		}
		o.Missing, o.Optional, o.alone = o.Missing && n.Missing, o.Optional || n.Optional, o.alone || n.alone
		o.Programs = slices.Compact(slices.Sorted(slices.Values(slices.Concat(o.Programs, n.Programs))))
	}
	return out
}

// Covers reports whether a rule for n also allows other. A rule for a folder opens
// neither the hidden nor the protected paths in it, and a sensitive need may be left
// out of the file. So for these only an equal need counts.
func (n *Need) Covers(other *Need) bool {
	if n.Kind == other.Kind && n.Subject() == other.Subject() {
		return true
	}
	if n.Class >= Sensitive || other.Class >= Sensitive || other.alone {
		return false
	}
	switch {
	case n.Kind == Connect && other.Kind == Connect:
		return coversHost(n.Host, other.Host)
	case n.Kind == Write && (other.Kind == Write || other.Kind == Read), n.Kind == Read && other.Kind == Read:
		return pathx.Within(n.Path, other.Path)
	}
	return false
}

// Named reports whether a list of absolute paths and hosts contains the subject of the
// need, or a folder around it.
func (n *Need) Named(list []string) bool {
	return slices.ContainsFunc(list, func(name string) bool {
		switch n.Kind {
		case Write, Read:
			return strings.HasPrefix(name, "/") && pathx.Within(name, n.Path)
		case Connect:
			rule, err := policy.ParseHost(n.Host)
			return name == n.Host || err == nil && name == rule.Host
		default:
			return name == n.Subject()
		}
	})
}

// foldAt is the number of files in one folder from which on the rule is for the folder.
const foldAt = 3

// toFolders replaces foldAt or more files of one folder by the folder, except where
// staysApart.
func (m *Machine) toFolders(needs []Need) []Need {
	count := map[string]int{}
	for i := range needs {
		count[foldKey(&needs[i])]++
	}
	for i := range needs {
		n := &needs[i]
		if count[foldKey(n)] < foldAt || foldKey(n) == "" || m.staysApart(n) {
			continue
		}
		n.Path, n.Missing, n.Optional = path.Dir(n.Path), false, false
	}
	return merge(needs)
}

// staysApart reports whether the folder around a need is too broad to stand for it: see
// broad and, for writing, system.
func (m *Machine) staysApart(n *Need) bool {
	dir := path.Dir(n.Path)
	return m.broad(dir) || m.system(dir) && n.Kind == Write
}

// foldKey is equal for needs that can become one folder. It is empty for needs that
// cannot.
func foldKey(n *Need) string {
	if n.Class >= Sensitive || n.Kind != Read && n.Kind != Write || n.Missing || n.alone {
		return ""
	}
	return string(n.Kind) + " " + path.Dir(n.Path)
}

// hidden reports whether a rule for this path, or a folder around it, hides it. A path
// that is hidden only because nothing below "/" is shown does not count.
func hidden(d *plan.Denial) bool {
	return d.Access == policy.Hidden && d.At != "/" && d.At != ""
}
