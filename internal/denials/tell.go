package denials

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/internal/show"
	"github.com/cloche-dev/cloche/plan"
)

// maxLines is how many refusals are printed: more would bury what the command
// itself had to say. All of them are in the report and in the log.
const maxLines = 5

// A Telling is what is to be told of a run's refusals.
type Telling struct {
	List []plan.Denial
	// More is how many there were beside those of the list.
	More int
	// Home is the user's home folder.
	Home string
	// Fixer finds what allows refusals that are printed together.
	Fixer judge.Fixer
	// Success: the command did what it was asked to.
	Success bool
	// Where names what has all of them.
	Where string
}

// groups are those that are worth telling. Programs have habits, and try to
// execute what another folder of PATH has as well, and do well without: such
// refusals are printed only if the command failed, and habits last. That one of them is
// harmless is said of none then: it may be what the command failed for.
func (t *Telling) groups() []Group {
	all := Fold(t.List, t.Home, t.Fixer)
	if t.Success {
		return slices.DeleteFunc(all, func(g Group) bool { return quiet(&g) })
	}
	slices.SortStableFunc(all, func(x, y Group) int { return rank(&x) - rank(&y) })
	return all
}

// quiet reports whether a command that went well needs no word about it.
func quiet(g *Group) bool {
	return g.Noise != "" || g.Op == plan.OpExec
}

func rank(g *Group) int {
	if g.Noise != "" {
		return 1
	}
	return 0
}

// Lines are for people: the most frequent first, and how many more there were.
// There are none of a command that went well: all are in the report and the log.
func (t *Telling) Lines() []string {
	if t.Success {
		return nil
	}
	var lines []string
	groups := t.groups()
	for i := range groups {
		if i == maxLines {
			break
		}
		lines = append(lines, groups[i].String())
	}
	if rest := t.rest(groups); rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more refusals; %s has all that were kept", rest, t.Where))
	}
	return lines
}

// rest is how many attempts are not told.
func (t *Telling) rest(groups []Group) int {
	n := t.More
	for i := maxLines; i < len(groups); i++ {
		n += groups[i].Count
	}
	return n
}

// First are the lines for the first refusal of each kind that happened before a time,
// while the command runs. What programs do well without is not among them.
func First(list []plan.Denial, home string, f judge.Fixer, before time.Time) []string {
	var lines []string
	told := map[string]bool{}
	for i := range list {
		d := &list[i]
		kind := "change"
		switch {
		case d.Rule == judge.RuleSockets:
			kind = "socket"
		case d.Host != "":
			kind = "network"
		case d.Op == plan.OpRead, d.Op == plan.OpCall:
			kind = string(d.Op)
		}
		if told[kind] || d.Op == plan.OpExec || d.Outside || !d.Time.Before(before) || noiseOf(d) != "" {
			continue
		}
		told[kind] = true
		first := *d
		first.Count = 1
		lines = append(lines, Fold([]plan.Denial{first}, home, f)[0].String())
	}
	return lines
}

// Text is for an agent: what was refused, why, and what it can do about it. It is
// empty if there is nothing to tell.
func (t *Telling) Text() string {
	groups := t.groups()
	if len(groups) == 0 && t.More == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("The sandbox refused:\n")
	for i := range groups {
		if i < maxLines {
			b.WriteString("- " + groups[i].forAgent() + "\n")
		}
	}
	if rest := t.rest(groups); rest > 0 {
		fmt.Fprintf(&b, "- and %d more\n", rest)
	}
	b.WriteString("Trying again, or in another way, gives the same. Do without it, or ask the person you work for to allow it with the option given.\n")
	return b.String()
}

// forAgent is the group in the words of Text.
func (g *Group) forAgent() string {
	object := show.Visible(g.Object())
	if g.Files > 1 {
		object = fmt.Sprintf("%d files in %s", g.Files, show.Visible(g.Folder))
	}
	s := string(g.Op) + " " + object
	if g.Program != "" {
		s += " by " + show.Visible(g.Program)
	}
	s += "; rule: " + g.Because()
	if len(g.Together) > 0 {
		s += "; option: " + runoption.Text(g.Together...)
	}
	return s + g.remark()
}
