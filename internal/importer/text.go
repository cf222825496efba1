package importer

import (
	"fmt"
	"strings"

	"github.com/cloche-dev/cloche/internal/policyfile"
)

// program returns the name of the program that the settings belong to.
func (s Source) program() string {
	switch s {
	case SandboxRuntime:
		return "sandbox-runtime"
	case ClaudeCode:
		return "Claude Code"
	case Codex:
	}
	return "Codex"
}

// text returns the policy as the text of a policy file.
func (b *builder) text(from Source) ([]byte, error) {
	b.settle()
	body, err := policyfile.Text(b.lines())
	if err != nil {
		return nil, err
	}
	w := &strings.Builder{}
	fmt.Fprintf(w, "# Imported from the settings of %s in %s. Secrets of the home folder are hidden,\n", from.program(), policyfile.Comment(b.file))
	w.WriteString("# and what programs outside run is kept as it is, beside what is listed here.\n")
	for _, r := range b.remarks {
		fmt.Fprintf(w, "# %s\n", policyfile.Comment(r))
	}
	w.WriteString(body)
	if len(b.unmatched) > 0 {
		w.WriteString("\n# These settings have no equal here:\n")
	}
	for _, u := range b.unmatched {
		fmt.Fprintf(w, "#   %s: %s\n", policyfile.Comment(u.Setting), policyfile.Comment(u.Reason))
	}
	return []byte(w.String()), nil
}

// lines returns the settings of the policy. The comment of each says which setting it
// comes from.
func (b *builder) lines() []policyfile.Line {
	lines := []policyfile.Line{
		{Field: "version", Value: 1},
		{Field: "presets", Value: policyfile.Raw("[" + strings.Join(b.presets, ", ") + "]")},
	}
	single := func(field string, e entry) {
		if e.value != "" {
			lines = append(lines, policyfile.Line{Field: field, Value: policyfile.Raw(e.value), Comment: e.from})
		}
	}
	list := func(prefix string, fields ...string) {
		for _, field := range fields {
			for _, e := range b.lists[field] {
				lines = append(lines, policyfile.Line{Field: field, Item: true, Value: prefix + e.value, Comment: e.from})
			}
		}
	}
	// Each path may be missing: the other programs skip missing paths too.
	list("?", "paths.write", "paths.read", "paths.hide", "paths.protect")
	single("network.mode", b.mode)
	list("", "network.allow", "network.deny", "sockets")
	single("env.policy", b.env)
	list("", "env.pass")
	for _, s := range b.set {
		name, value, _ := strings.Cut(s.value, "=")
		lines = append(lines, policyfile.Line{Field: "env.set." + name, Value: value, Comment: s.from})
	}
	if b.unlimited {
		single("limits", entry{"{time: unlimited, processes: 4096, open_files: 65536}", "there were none"})
	}
	return lines
}
