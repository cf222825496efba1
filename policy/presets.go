package policy

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:generate go test -run ^TestSchemaIsFresh$ -update .
//go:generate go run ./internal/genprotection -o ../docs/reference/protected-files.md

//go:embed presets/*.yaml
var presetFiles embed.FS

// defaultPreset is what a policy starts from where no layer names presets.
const defaultPreset = "workspace"

// Presets returns the names of all presets, sorted.
func Presets() []string { return slices.Clone(presetNames()) }

var presetNames = sync.OnceValue(func() []string {
	entries, err := presetFiles.ReadDir("presets")
	if err != nil {
		panic("policy: the embedded presets cannot be listed: " + err.Error())
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".yaml")
	}
	return names
})

// presetCache has each preset that was read. The documents in it are shared and never
// changed.
var presetCache sync.Map // name → *document

// preset returns the shared document of a preset.
func preset(name string) (*document, error) {
	if doc, ok := presetCache.Load(name); ok {
		return doc.(*document), nil
	}
	text, err := PresetSource(name)
	if err != nil {
		return nil, err
	}
	doc, err := parsePreset(name, string(text))
	if err != nil {
		return nil, err
	}
	shared, _ := presetCache.LoadOrStore(name, doc)
	return shared.(*document), nil
}

// parsePreset reads a preset. It reads the section "paths" itself and leaves the rest to
// [Parse]: the lists of the default presets have some 1,500 entries, for which the YAML
// library takes 11 to 14 ms of processor time, and this function 0.7 to 1 ms. A start
// of cloche run may take about 7 ms. A test checks that both ways give the same rules.
func parsePreset(name, text string) (*document, error) {
	source := "preset " + name
	paths, rest := cutPaths(source, text)
	d, err := Parse(source, []byte(rest))
	if err == nil && paths != nil {
		d.content.Paths = paths
	}
	return &d.content, err
}

// cutPaths takes the section "paths" out of the text of a preset. In the rest its lines
// are empty, so that all others keep their numbers. If the section has a form that
// cutPaths does not know, it returns nil and the whole text.
func cutPaths(source, text string) (*pathsSection, string) {
	before, section, found := strings.Cut(text, "\npaths:\n")
	if !found {
		return nil, text
	}
	p := &pathsSection{}
	lists := map[string]*[]PathRule{"write": &p.Write, "read": &p.Read, "hide": &p.Hide, "hide_found": &p.HideFound, "protect": &p.Protect, "protect_unless_under": new([]PathRule)}
	var list *[]PathRule
	free := make([]PathRule, 0, strings.Count(section, "\n    - ")) // one piece of memory for all lists
	number := strings.Count(before, "\n") + 2                       // of the line "paths:"
	first := number
	for section != "" {
		line, after, _ := strings.Cut(section, "\n")
		if line != "" && line[0] != ' ' && line[0] != '#' {
			break // the next section
		}
		section = after
		number++
		entry, isEntry := strings.CutPrefix(line, "    - ")
		field, isField := strings.CutPrefix(line, "      ")
		key := strings.TrimSpace(line)
		switch {
		case key == "" || key[0] == '#':
			continue
		case isEntry && list != nil:
			*list = append(*list, PathRule{Origin: Origin{Source: source, Line: number, Column: 7}})
			field = entry
		case isField && list != nil && len(*list) > 0:
		default:
			if list != nil {
				free = (*list)[len(*list):]
				*list = slices.Clip(*list)
			}
			if list = lists[strings.TrimSuffix(key, ":")]; list == nil {
				return nil, text
			}
			*list = free
			continue
		}
		if !(*list)[len(*list)-1].readFields(field) {
			return nil, text
		}
	}
	for _, r := range *lists["protect_unless_under"] {
		p.ProtectUnlessUnder = append(p.ProtectUnlessUnder, Exemption{Folder: r.Path, Reason: r.Reason, Origin: r.Origin})
	}
	if section == "" {
		return p, before + "\n" // no line follows that could need its number
	}
	return p, before + strings.Repeat("\n", number-first+2) + section
}

// readFields reads "key: value" or "{key: value, key: value}".
func (r *PathRule) readFields(rest string) bool {
	flow := strings.HasPrefix(rest, "{") && strings.HasSuffix(rest, "}")
	if flow {
		rest = rest[1 : len(rest)-1]
	}
	for rest != "" {
		var key, value string
		key, rest, _ = strings.Cut(rest, ": ")
		quoted, isQuoted := strings.CutPrefix(rest, `"`)
		switch {
		case isQuoted:
			value, rest, _ = strings.Cut(quoted, `"`)
			rest = strings.TrimPrefix(rest, ", ")
		case flow:
			value, rest, _ = strings.Cut(rest, ", ")
		default:
			value, rest = rest, ""
		}
		switch key {
		case "path":
			r.Path = value
		case "reason":
			r.Reason = value
		case "optional":
			r.Optional = value == "true"
		case "create":
			r.Create = value == "true"
		default:
			return false
		}
	}
	return true
}

// PresetSource returns the text of a preset, comments included.
func PresetSource(name string) ([]byte, error) {
	if err := knownPreset(name); err != nil {
		return nil, err
	}
	return presetFiles.ReadFile("presets/" + name + ".yaml")
}

// PresetKind returns what a preset is for: "base" is a whole policy to start from,
// "group" a list that a policy adds by naming it, "toolchain" and "agent" are what one
// toolchain or one agent needs beside a base.
func PresetKind(name string) string {
	switch name {
	case "workspace", "strict", "readonly", "open":
		return "base"
	case "go", "java", "node", "python", "rust":
		return "toolchain"
	case "aider", "claude", "codex", "gemini", "opencode":
		return "agent"
	}
	return "group"
}

func isTool(name string) bool {
	kind := PresetKind(name)
	return kind == "toolchain" || kind == "agent"
}

// presetLayer is the layer of a preset by the name of its document. A tool's own
// files are opened by a rule above the one that hides them from all others.
func presetLayer(document string) Layer {
	if isTool(strings.TrimPrefix(document, "preset ")) {
		return LayerTool
	}
	return LayerPreset
}

// startingPresets are the presets of a list in the order in which they apply:
// those for tools last, and on the default if they have no base.
func startingPresets(names []string) []string {
	if !slices.ContainsFunc(names, isTool) {
		return names
	}
	tools := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !isTool(n) })
	others := slices.DeleteFunc(slices.Clone(names), isTool)
	if !slices.ContainsFunc(others, func(n string) bool { return PresetKind(n) == "base" }) {
		others = append([]string{defaultPreset}, others...)
	}
	return append(others, tools...)
}

// expandPresets returns the documents of presets and of all that they include,
// included ones first, each once. The names in have are left out.
func expandPresets(names []string, have map[string]bool, lookup func(string) (*document, error)) ([]*document, error) {
	x := &presetExpander{lookup: lookup, done: have}
	for _, name := range names {
		if err := x.add(name); err != nil {
			return nil, err
		}
	}
	return x.docs, nil
}

type presetExpander struct {
	lookup func(string) (*document, error)
	done   map[string]bool
	open   []string
	docs   []*document
}

func (x *presetExpander) add(name string) error {
	if slices.Contains(x.open, name) {
		return fmt.Errorf("preset %s includes itself: %s", name, strings.Join(append(x.open, name), " → "))
	}
	if x.done[name] {
		return nil
	}
	doc, err := x.lookup(name)
	if err != nil {
		return err
	}
	x.open = append(x.open, name)
	for _, inner := range doc.Presets {
		if err := x.add(inner); err != nil {
			return err
		}
	}
	x.open = x.open[:len(x.open)-1]
	x.done[name] = true
	x.docs = append(x.docs, doc)
	return nil
}
