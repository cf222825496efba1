// Package learn turns what a command was refused into the rules that it needs:
// few of them, each as narrow as it can be and still be of use on another day,
// and in the form of a policy file.
//
// It decides nothing. What may be given to a command that is being watched, and
// what only after a person said so, is the class of a [Need]; whoever runs the
// command asks. Everything in a record is chosen by the command, names of
// programs and files above all: the file that [File.Text] writes cannot be made
// to say more than the rules in it, whatever the names are.
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

// A Class says who has to agree to a need.
type Class int

// The classes, the most harmless first.
const (
	// Safe is given to the next run without a question: reading what no rule
	// hides, and the caches of well-known tools.
	Safe Class = iota
	// Plain is written to the file. The next run gets it only if somebody agrees:
	// it could change the user's files, or send something away.
	Plain
	// Sensitive is neither written nor given unless somebody names it: secrets,
	// files that programs outside run, the system, the local network.
	Sensitive
	// Closed is what no rule of a policy opens.
	Closed
)

// A Need is one thing that a command was refused.
type Need struct {
	Kind Kind
	// Path is the host's, clean and absolute, for Write, Read and Socket; an
	// abstract socket is "@name".
	Path string
	// Host is the rule of Connect, in the form of policy.ParseHost, or the port
	// of Forward.
	Host  string
	Class Class
	// Missing: Path is a folder that has to be made, or there is nothing to open.
	Missing bool
	// Optional: the rule makes sense also where Path does not exist.
	Optional bool
	// Why says what the place is, or why it is sensitive or closed.
	Why string
	// Programs are who was refused.
	Programs []string
	// alone: a rule for the folder around Path would not allow it.
	alone bool
}

// Subject is the path or the host.
func (n *Need) Subject() string {
	if n.Kind == Connect || n.Kind == Forward {
		return n.Host
	}
	return n.Path
}

// Machine is what has to be known of the machine to make sense of a path.
type Machine struct {
	Home, Workspace string
	// Locked are cloche's own folders, which no rule opens.
	Locked []string
	// Stat reports whether a path of the host exists and whether it is a folder.
	Stat func(path string) (exists, folder bool)
	// Judge says what rules would leave of a path if all else were open to be
	// written. A rule that keeps a secret, or a file that programs outside run, may
	// not be the one that refused: where everything is hidden, it had no part in it.
	// nil knows of no such rule.
	Judge func(path string) plan.Decision
	// Plan is the plan of the run; nil means that paths inside are the host's.
	Plan *plan.Plan
	// Allows reports whether an edit of the policy would allow what was denied; nil takes
	// it for granted.
	Allows func(*plan.Denial, policy.Edit) bool
}

// Needs are the rules that would have allowed what was refused, folded: a folder
// in the place of its many files, nothing that another one covers, and in an order
// that does not depend on that of the refusals.
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

// closedUnlessAllowed closes a need whose rule would not allow what was refused, by the judge
// that check asks. If the rule is for more than what was refused, the option for only that
// may still help. What has to be made first cannot be tried.
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

// edit is the rule for a path as an edit of the policy.
func (n *Need) edit() policy.Edit {
	return policy.Edit{Field: listOf(n.Kind), Value: n.Path, Optional: n.Optional}
}

// Fold merges needs: equal ones, those that another one covers, and many files of
// one folder into that folder.
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

// replaces reports whether a need makes another one unnecessary. A folder does so
// for what is in it. Of a host it is the other way round: a name is looked up
// before it is connected to, and the rule for the port allows both.
func replaces(n, other *Need) bool {
	if n.Kind == Connect {
		return other.Covers(n) && !n.Covers(other)
	}
	return n.Covers(other) && !other.Covers(n)
}

// merge puts equal needs together. The stricter class counts.
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

// Covers reports whether a rule for n also gives what other needs. A rule about a
// folder opens neither what is hidden in it nor what is protected, and what is
// sensitive may be left out: only the same need covers one of these.
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

// Named reports whether a list of absolute paths and of hosts names what is
// needed, or a folder around it.
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

// foldAt is how many files of a folder stand for the folder.
const foldAt = 3

// toFolders replaces many files of one folder by the folder, unless the folder is
// one that holds all kinds of things.
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

// staysApart reports whether the folder around a need is one that holds all kinds of things.
func (m *Machine) staysApart(n *Need) bool {
	dir := path.Dir(n.Path)
	return m.broad(dir) || m.system(dir) && n.Kind == Write
}

// foldKey is equal for the needs that can become one folder; empty for those
// that cannot.
func foldKey(n *Need) string {
	if n.Class >= Sensitive || n.Kind != Read && n.Kind != Write || n.Missing || n.alone {
		return ""
	}
	return string(n.Kind) + " " + path.Dir(n.Path)
}

// hidden reports whether a rule of its own hides what was refused, and not the
// mere lack of a rule that shows it.
func hidden(d *plan.Denial) bool {
	return d.Access == policy.Hidden && d.At != "/" && d.At != ""
}
