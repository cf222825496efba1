package learn

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/cloche-dev/cloche/internal/policyfile"
	"github.com/cloche-dev/cloche/policy"
)

// A File is the policy file that learning produces.
type File struct {
	Machine
	// Base is the folder that the file will be in: relative paths start there.
	Base string
	// Command is the command line that was run. It is written into the file, so it must
	// contain no secret.
	Command string
	// Start has the settings of the first run, with absolute paths. Values of variables are
	// not written.
	Start []policy.Setting
	// Given are the rules that the command ran with. Proposed are rules that are written
	// without having been tried.
	Given, Proposed []Need
	// Left are the needs that get no rule. The file lists them as comments.
	Left []Need
	// Outcome says how the last run ended.
	Outcome string
}

// lists are the lists of the file that Start and the learned rules fill, in the order
// of the file.
var lists = []string{
	"paths.write", "paths.read", "paths.hide", "paths.hide_found", "paths.protect", "paths.protect_unless_under",
	"network.allow", "network.deny", "network.publish", "network.forward", "sockets",
}

// Text returns the file.
func (f *File) Text() (string, error) {
	lines := append([]policyfile.Line{{Field: "version", Value: 1}}, f.single()...)
	for _, list := range lists {
		if list == "network.allow" {
			lines = append(lines, f.networkMode()...)
		}
		for _, s := range f.Start {
			if s.Field == list {
				lines = append(lines, policyfile.Line{Field: list, Item: true, Value: s.Value, Heading: "Asked for.", Gap: true})
			}
		}
		lines = append(lines, f.learned(list)...)
	}
	text, err := policyfile.Text(lines)
	if err != nil {
		return "", fmt.Errorf("write the policy: %w", err)
	}
	return f.head() + text + f.leftOut(), nil
}

func (f *File) head() string {
	head := "# What this command needs, learned by running it:\n#   " + policyfile.Comment(f.Command) + "\n"
	if f.Outcome != "" {
		head += "# " + policyfile.Comment(f.Outcome) + "\n"
	}
	return head + "# It has what these runs were denied and no more. Read it before you trust it.\n"
}

// single returns the settings of Start that are neither in lists nor about the network.
// Values of variables are left out.
func (f *File) single() []policyfile.Line {
	var lines []policyfile.Line
	for _, s := range f.Start {
		if s.Field == "version" || slices.Contains(lists, s.Field) || strings.HasPrefix(s.Field, "network.") || strings.HasPrefix(s.Field, "env.set.") {
			continue
		}
		lines = append(lines, policyfile.Line{Field: s.Field, Item: s.Item, Value: s.Value})
	}
	return lines
}

// networkMode returns the network mode and the link of Start. If hosts were learned, it
// leaves out a mode in which no host can be allowed.
func (f *File) networkMode() []policyfile.Line {
	var lines []policyfile.Line
	for _, s := range f.Start {
		judges := s.Value == policy.NetworkUser || s.Value == policy.NetworkHost
		if s.Field == "network.link" || s.Field == "network.mode" && (judges || len(f.learned("network.allow")) == 0) {
			lines = append(lines, policyfile.Line{Field: s.Field, Value: s.Value, Gap: true})
		}
	}
	return lines
}

// The headings of groups of rules. headingOrder has their order.
const (
	headingCaches   = "Caches of tools. What is put there is used outside of the sandbox too."
	headingTools    = "Tools and what they keep."
	headingOther    = "Other places."
	headingUntried  = "Refused, and not tried: nobody was there to agree."
	headingConfirm  = "Sensitive, and confirmed."
	headingHosts    = "Hosts."
	headingServices = "Services of this machine, and confirmed."
)

func headingOf(n *Need) string {
	switch {
	case n.Class == Sensitive && (n.Kind == Forward || n.Kind == Socket):
		return headingServices
	case n.Class == Sensitive:
		return headingConfirm
	case n.Kind == Connect:
		return headingHosts
	case n.Class == Safe && n.Optional:
		return headingCaches
	case n.Why != "":
		return headingTools
	}
	return headingOther
}

var headingOrder = []string{headingCaches, headingTools, headingOther, headingHosts, headingServices, headingConfirm, headingUntried}

// learned returns the learned rules of one list, ordered by heading.
func (f *File) learned(list string) []policyfile.Line {
	var lines []policyfile.Line
	add := func(needs []Need, heading func(*Need) string) {
		for i := range needs {
			if n := &needs[i]; listOf(n.Kind) == list {
				lines = append(lines, policyfile.Line{Field: list, Item: true, Value: f.value(n), Heading: heading(n), Comment: programs(n), Gap: true})
			}
		}
	}
	add(f.Given, headingOf)
	add(f.Proposed, func(*Need) string { return headingUntried })
	slices.SortStableFunc(lines, func(a, b policyfile.Line) int {
		return slices.Index(headingOrder, a.Heading) - slices.Index(headingOrder, b.Heading)
	})
	return lines
}

// listOf returns the list of a policy file that rules for a kind of need belong to.
func listOf(k Kind) string {
	switch k {
	case Write:
		return "paths.write"
	case Read:
		return "paths.read"
	case Connect:
		return "network.allow"
	case Forward:
		return "network.forward"
	case Socket:
		return "sockets"
	}
	return ""
}

// value returns the entry of the list for a need.
func (f *File) value(n *Need) policyfile.Raw {
	switch n.Kind {
	case Connect, Forward:
		return scalar(n.Host)
	case Socket:
		return scalar(f.form(n.Path))
	case Write, Read:
	}
	return pathEntry(f.form(n.Path), n)
}

// pathEntry returns the entry for a path: the path alone if that is enough, otherwise a
// mapping.
func pathEntry(p string, n *Need) policyfile.Raw {
	if !n.Optional && n.Why == "" && !strings.HasPrefix(p, "?") {
		return scalar(p)
	}
	entry := "{path: " + scalar(p)
	if n.Optional {
		entry += ", optional: true"
	}
	if n.Why != "" {
		entry += ", reason: " + scalar(policyfile.Comment(n.Why))
	}
	return entry + "}"
}

// leftOut lists the needs in Left, as comments.
func (f *File) leftOut() string {
	if len(f.Left) == 0 {
		return ""
	}
	b := &strings.Builder{}
	b.WriteString("\n# Left out. To open one of these, learn again with --include, or write a rule.\n")
	for i := range f.Left {
		n := &f.Left[i]
		line := string(n.Kind) + " " + f.short(n.Subject())
		if n.Why != "" {
			line += ": " + n.Why
		}
		b.WriteString("#   " + policyfile.Comment(line))
		if who := programs(n); who != "" {
			b.WriteString("  # " + policyfile.Comment(who))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// programs names the programs that were denied, at most four of them.
func programs(n *Need) string {
	const most = 4
	if len(n.Programs) > most {
		return strings.Join(n.Programs[:most], ", ") + ", …"
	}
	return strings.Join(n.Programs, ", ")
}

// scalar returns a text in a form that YAML reads back unchanged: plain if no character
// has a meaning in YAML, otherwise in quotes.
func scalar(s string) policyfile.Raw {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+$@=~"
	path := strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "~/")
	if path && strings.Trim(s, safe) == "" {
		return policyfile.Raw(s)
	}
	words := s != "" && unicode.IsLetter(rune(s[0])) && strings.Contains(s, " ")
	if words && strings.Trim(s, safe+" ") == "" {
		return policyfile.Raw(s)
	}
	return policyfile.Raw(policyfile.Quote(s))
}
