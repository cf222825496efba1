package policy

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:generate go test -run ^TestCompiledPresets$ -update .
//go:generate go run ./internal/genschema -o schema.json
//go:generate go run ./internal/genprotection -o ../docs/reference/protected-files.md

//go:embed presets/*.yaml
var presetFiles embed.FS

// DefaultPreset is what a policy starts from where no layer names presets.
const DefaultPreset = "workspace"

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

// presetCache holds each preset once it has been made. The documents in it are
// shared and never changed.
var presetCache sync.Map // name → *Document

// preset returns the shared document of a preset. It comes from Go code that is
// generated from the YAML: parsing that would make a start of cloche run take 2.6 times
// as long.
func preset(name string) (*Document, error) {
	if doc, ok := presetCache.Load(name); ok {
		return doc.(*Document), nil
	}
	doc := compiledPreset(name)
	if doc == nil {
		return nil, knownPreset(name)
	}
	shared, _ := presetCache.LoadOrStore(name, doc)
	return shared.(*Document), nil
}

// ref returns a pointer to a value, for the compiled presets.
func ref[T any](v T) *T { return &v }

// Preset returns the document of a preset. It is the caller's own copy.
func Preset(name string) (*Document, error) {
	if err := knownPreset(name); err != nil {
		return nil, err
	}
	data, err := PresetSource(name)
	if err != nil {
		return nil, err
	}
	return Parse("preset "+name, data)
}

// PresetSource returns the text of a preset, comments included.
func PresetSource(name string) ([]byte, error) {
	data, err := presetFiles.ReadFile("presets/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("preset %q: %w", name, err)
	}
	return data, nil
}

// A PresetKind says what a preset is for.
type PresetKind int

// The kinds of presets.
const (
	// PresetBase is a whole policy to start from.
	PresetBase PresetKind = iota
	// PresetGroup is a list that a policy adds by naming it.
	PresetGroup
	// PresetToolchain is what one toolchain needs beside a base.
	PresetToolchain
	// PresetAgent is what one agent needs beside a base.
	PresetAgent
)

// String returns the kind as a heading would have it.
func (k PresetKind) String() string {
	return [...]string{"base", "group", "toolchain", "agent"}[k]
}

// KindOfPreset returns the kind of a preset. A name that is no preset's is taken
// for a group's.
func KindOfPreset(name string) PresetKind {
	switch name {
	case "workspace", "strict", "readonly", "open":
		return PresetBase
	case "go", "java", "node", "python", "rust":
		return PresetToolchain
	case "aider", "claude", "codex", "gemini", "opencode":
		return PresetAgent
	}
	return PresetGroup
}

func isTool(name string) bool { return KindOfPreset(name) >= PresetToolchain }

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
	if !slices.ContainsFunc(others, func(n string) bool { return KindOfPreset(n) == PresetBase }) {
		others = append([]string{DefaultPreset}, others...)
	}
	return append(others, tools...)
}

// expandPresets returns the documents of presets and of all that they include,
// included ones first, each once. The names in have are left out.
func expandPresets(names []string, have map[string]bool, lookup func(string) (*Document, error)) ([]*Document, error) {
	x := &presetExpander{lookup: lookup, done: have}
	for _, name := range names {
		if err := x.add(name); err != nil {
			return nil, err
		}
	}
	return x.docs, nil
}

type presetExpander struct {
	lookup func(string) (*Document, error)
	done   map[string]bool
	open   []string
	docs   []*Document
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
