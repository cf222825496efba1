package plan

import (
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// A Late is a name of files that are hidden where they are found, in a tree with
// more folders than are looked at before a command starts. What was found is a
// line of the plan. A file that is new in another folder is kept from the command
// only where a broker sees it opened, by this name: that prevents an accident, and
// not an attack, since the name is the process's own.
type Late struct {
	// Root is the tree, as seen inside, and Source what the host calls it.
	Root   string `json:"root"`
	Source string `json:"source"`
	// Name is that of a file, which may be a pattern.
	Name   string        `json:"name"`
	Reason string        `json:"reason,omitempty"`
	Origin policy.Origin `json:"origin"`
}

func (l *Late) verdict(at string) Verdict {
	return Verdict{Access: policy.Hidden, Rule: ruleHideFound, Subject: "**/" + l.Name, Reason: l.Reason, Origin: l.Origin, At: at}
}

// lateNames are the names of a plan's Late by what most files are told by.
type lateNames struct {
	exact    map[string][]*Late
	patterns []*Late
}

func newLateNames(all []Late) *lateNames {
	if len(all) == 0 {
		return nil
	}
	n := &lateNames{exact: map[string][]*Late{}}
	for i := range all {
		if pathx.IsGlob(all[i].Name) {
			n.patterns = append(n.patterns, &all[i])
		} else {
			n.exact[all[i].Name] = append(n.exact[all[i].Name], &all[i])
		}
	}
	return n
}

func (n *lateNames) find(inside string) *Late {
	if n == nil {
		return nil
	}
	name := path.Base(inside)
	for _, l := range n.exact[name] {
		if l.covers(inside) {
			return l
		}
	}
	for _, l := range n.patterns {
		if host.MatchesName(l.Name, name) && l.covers(inside) {
			return l
		}
	}
	return nil
}

// covers reports whether a path is in a folder that searches look into.
func (l *Late) covers(inside string) bool {
	if !pathx.Within(l.Root, inside) || inside == l.Root {
		return false
	}
	dirs := strings.Split(path.Dir(strings.TrimPrefix(inside[len(l.Root):], "/")), "/")
	return !slices.ContainsFunc(dirs, host.IsNotSearched)
}

// Late reports whether a clean absolute path as seen inside has a name that would
// have been hidden, had it been there when its folder was looked at, and which file
// of the host it is. A path that has a line of its own is decided by that.
func (m *Masks) Late(inside string) (v Verdict, file string, ok bool) {
	l := m.late.find(inside)
	if l == nil || m.lines[inside] != nil || m.line(inside).Access == policy.Hidden {
		return Verdict{}, "", false
	}
	return l.verdict(inside), pathx.Rebase(l.Root, l.Source, inside), true
}
