package cli

import (
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// writePatterns lists the rules that hold for every path they match. A preset
// has hundreds of them; a few stand for all, and the preset says the rest.
func (e *explanation) writePatterns(b *strings.Builder) {
	t := &table{}
	for _, group := range patternGroups(e.Globs) {
		first := &group[0]
		if len(group) == 1 {
			t.add(first.Pattern, first.Access.String(), first.Origin.String(), first.Reason)
			continue
		}
		name := strings.TrimPrefix(first.Origin.Source, "preset ")
		t.add(few(patternNames(group)), first.Access.String(), first.Origin.Source, "for all of them: cloche policy presets "+name)
	}
	section(b, "patterns", t)
	e.writeExempt(b)
}

// writeExempt lists the folders in which patterns do not protect.
func (e *explanation) writeExempt(b *strings.Builder) {
	t := &table{}
	var preset []string
	for _, x := range e.Exempt {
		if x.Origin.Layer == policy.LayerPreset {
			preset = append(preset, x.Folder)
		} else {
			t.add(x.Folder, x.Origin.String(), x.Reason)
		}
	}
	if len(preset) > 0 {
		t.add(few(preset), "presets", "what programs fetch and build")
	}
	section(b, "folders in which patterns do not protect", t)
}

// patternGroups puts the patterns of one preset together; every other pattern
// is a group of its own.
func patternGroups(globs []plan.Glob) [][]plan.Glob {
	type key struct {
		preset string
		access policy.Access
	}
	var groups [][]plan.Glob
	known := map[key]int{}
	for _, g := range globs {
		k := key{g.Origin.Source, g.Access}
		i, ok := known[k]
		if !ok || g.Origin.Layer != policy.LayerPreset {
			known[k] = len(groups)
			groups = append(groups, []plan.Glob{g})
			continue
		}
		groups[i] = append(groups[i], g)
	}
	return groups
}

// patternNames are the names that patterns match, without the "/**/" that all of
// a preset's begin with.
func patternNames(group []plan.Glob) []string {
	names := make([]string, len(group))
	for i, g := range group {
		names[i] = strings.TrimPrefix(g.Pattern, "/**/")
	}
	return names
}

// few are some of many names, from all over the list.
func few(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	some := make([]string, shown)
	for i := range some {
		some[i] = names[i*len(names)/shown]
	}
	return strings.Join(some, ", ") + " and " + strconv.Itoa(len(names)-shown) + " more"
}
