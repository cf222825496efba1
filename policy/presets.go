package policy

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:generate go test -run ^(TestSchemaIsFresh|TestCompiledPresets)$ -update .
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

// preset returns the document of a preset. It comes from Go code that is generated from
// the YAML, and shares its lists with all others: nobody may change it. To read the
// YAML at each start would take 11 to 14 ms of processor time, and a start of cloche run
// may take about 7; a parser of our own for the lists takes 0.8.
func preset(name string) (*document, error) {
	if doc := compiledPreset(name); doc != nil {
		return doc, nil
	}
	return nil, knownPreset(name)
}

// PresetSource returns the text of a preset, comments included.
func PresetSource(name string) ([]byte, error) {
	if err := knownPreset(name); err != nil {
		return nil, err
	}
	return presetFiles.ReadFile("presets/" + name + ".yaml")
}

// PresetKind returns what a preset is for: "base" is a whole policy to start from,
// "group" a list that a policy adds by naming it, "toolchain", "database" and "agent" are
// what one toolchain, the clients of one database or one agent need beside a base.
func PresetKind(name string) string {
	switch name {
	case "workspace", "strict", "readonly", "open":
		return "base"
	case "browser", "c", "go", "java", "node", "python", "rust":
		return "toolchain"
	case "mysql", "postgres", "redis":
		return "database"
	case "aider", "amp", "claude", "cline", "codex", "continue", "copilot", "crush", "cursor", "gemini", "opencode", "qwen":
		return "agent"
	}
	return "group"
}

// PresetTried returns the version of the agent that the preset was tried with, by a test
// that runs the agent (internal/agenttest). It is empty for a preset that nobody has tried,
// and for those that are not for agents.
func PresetTried(name string) string {
	switch name {
	case "claude":
		return "2.1.325"
	case "cline":
		return "3.0.65"
	case "codex":
		return "0.166.0"
	case "continue":
		return "1.5.47"
	case "copilot":
		return "1.0.102"
	case "gemini":
		return "0.61.0"
	case "opencode":
		return "1.18.33"
	case "qwen":
		return "0.24.4"
	}
	return ""
}

func isTool(name string) bool {
	kind := PresetKind(name)
	return kind != "base" && kind != "group"
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
	var docs []*document
	var add func(names, around []string) error
	add = func(names, around []string) error {
		for _, name := range names {
			path := append(slices.Clone(around), name)
			if slices.Contains(around, name) {
				return fmt.Errorf("preset %s includes itself: %s", name, strings.Join(path, " → "))
			}
			if have[name] {
				continue
			}
			doc, err := lookup(name)
			if err == nil {
				err = add(doc.Presets, path)
			}
			if err != nil {
				return err
			}
			have[name] = true
			docs = append(docs, doc)
		}
		return nil
	}
	err := add(names, nil)
	return docs, err
}
