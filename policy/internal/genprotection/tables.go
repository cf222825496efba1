package main

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cloche-dev/cloche/policy"
)

// A region of the document is what stands between "<!-- preset NAME LIST -->" and
// the next "<!-- end -->".
var region = regexp.MustCompile(`(?s)(<!-- preset ([a-z-]+) ([a-z_]+) -->\n).*?(<!-- end -->)`)

// fill returns the text with the tables of all its regions made anew.
func fill(text string) (string, error) {
	var failed error
	out := region.ReplaceAllStringFunc(text, func(old string) string {
		m := region.FindStringSubmatch(old)
		groups, err := groupsOf(m[2], m[3])
		if err != nil {
			failed = fmt.Errorf("preset %s, paths.%s: %w", m[2], m[3], err)
			return old
		}
		return m[1] + tables(groups) + m[4]
	})
	return out, failed
}

// A group is the entries of a list that follow one comment.
type group struct {
	comment string
	entries []entry
}

type entry struct{ path, reason string }

// groupsOf reads one list of a preset with its comments.
func groupsOf(preset, list string) ([]group, error) {
	source, err := policy.PresetSource(preset)
	if err != nil {
		return nil, err
	}
	var document struct {
		Paths map[string]yaml.Node `yaml:"paths"`
	}
	if err := yaml.Unmarshal(source, &document); err != nil {
		return nil, err
	}
	node, ok := document.Paths[list]
	if !ok {
		return nil, fmt.Errorf("there is no such list")
	}
	var groups []group
	for i, item := range node.Content {
		var e struct{ Path, Reason string }
		if err := item.Decode(&e); err != nil {
			return nil, err
		}
		if comment := plain(item.HeadComment); comment != "" || i == 0 {
			groups = append(groups, group{comment: comment})
		}
		last := &groups[len(groups)-1]
		last.entries = append(last.entries, entry{e.Path, e.Reason})
	}
	return groups, nil
}

// plain is a comment as a sentence.
func plain(comment string) string {
	var words []string
	for line := range strings.Lines(comment) {
		words = append(words, strings.Fields(strings.TrimLeft(line, "# "))...)
	}
	return strings.Join(words, " ")
}

func tables(groups []group) string {
	var b strings.Builder
	for _, g := range groups {
		if g.comment != "" {
			b.WriteString("\n" + g.comment + "\n")
		}
		b.WriteString("\n| what | why |\n| --- | --- |\n")
		for _, r := range rows(g.entries) {
			fmt.Fprintf(&b, "| %s | %s |\n", r.path, r.reason)
		}
	}
	b.WriteString("\n")
	return b.String()
}

// rows puts the entries with one reason into one row, in the order of the first
// of each.
func rows(entries []entry) []entry {
	var out []entry
	at := map[string]int{}
	for _, e := range entries {
		name := "`" + strings.TrimPrefix(e.path, "**/") + "`"
		i, ok := at[e.reason]
		if !ok {
			at[e.reason] = len(out)
			out = append(out, entry{name, e.reason})
			continue
		}
		out[i].path += " " + name
	}
	return out
}
