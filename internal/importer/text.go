package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// program is the name of the program whose settings they are.
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

// text writes the policy.
func (b *builder) text(from Source) []byte {
	b.settle()
	w := &strings.Builder{}
	fmt.Fprintf(w, "# Imported from the settings of %s in %s. Secrets of the home folder are hidden,\n", from.program(), comment(b.file))
	w.WriteString("# and what programs outside run is kept as it is, beside what is listed here.\n")
	for _, r := range b.remarks {
		fmt.Fprintf(w, "# %s\n", comment(r))
	}
	fmt.Fprintf(w, "version: 1\npresets: [%s]\n", strings.Join(b.presets, ", "))
	b.writePaths(w)
	b.writeNetwork(w)
	writeList(w, "", "sockets", b.sockets)
	b.writeEnv(w)
	if b.unlimited {
		w.WriteString("limits: {time: unlimited, processes: 4096, open_files: 65536}  # there were none\n")
	}
	if len(b.unmatched) > 0 {
		w.WriteString("\n# These settings have no equal here:\n")
	}
	for _, u := range b.unmatched {
		fmt.Fprintf(w, "#   %s: %s\n", comment(u.Setting), comment(u.Reason))
	}
	return []byte(w.String())
}

func (b *builder) writePaths(w *strings.Builder) {
	if len(b.write)+len(b.read)+len(b.hide)+len(b.protect) == 0 {
		return
	}
	w.WriteString("paths:\n")
	writeList(w, "  ", "write", optional(b.write))
	writeList(w, "  ", "read", optional(b.read))
	writeList(w, "  ", "hide", optional(b.hide))
	writeList(w, "  ", "protect", optional(b.protect))
}

// optional lets each path be missing: the other programs skip such entries too.
func optional(list []entry) []entry {
	out := slices.Clone(list)
	for i := range out {
		out[i].value = "?" + out[i].value
	}
	return out
}

func (b *builder) writeNetwork(w *strings.Builder) {
	if b.mode == "" && len(b.allow)+len(b.deny) == 0 {
		return
	}
	w.WriteString("network:\n")
	if b.mode != "" {
		fmt.Fprintf(w, "  mode: %s  # %s\n", b.mode, comment(b.modeFrom))
	}
	writeList(w, "  ", "allow", b.allow)
	writeList(w, "  ", "deny", b.deny)
}

func (b *builder) writeEnv(w *strings.Builder) {
	if b.envPolicy == "" && len(b.pass)+len(b.set) == 0 {
		return
	}
	w.WriteString("env:\n")
	if b.envPolicy != "" {
		fmt.Fprintf(w, "  policy: %s  # %s\n", b.envPolicy, comment(b.envFrom))
	}
	writeList(w, "  ", "pass", b.pass)
	if len(b.set) > 0 {
		w.WriteString("  set:\n")
	}
	for _, s := range b.set {
		name, value, _ := strings.Cut(s.value, "=")
		fmt.Fprintf(w, "    %s: %s  # %s\n", name, quoted(value), comment(s.from))
	}
}

func writeList(w *strings.Builder, indent, name string, list []entry) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "%s%s:\n", indent, name)
	for _, e := range list {
		fmt.Fprintf(w, "%s  - %s  # %s\n", indent, quoted(e.value), comment(e.from))
	}
}

// quoted is a text in double quotes, as YAML reads it.
func quoted(s string) string { return strconv.QuoteToASCII(s) }

// comment is a text that stays on its line.
func comment(s string) string {
	q := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
