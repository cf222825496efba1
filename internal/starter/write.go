package starter

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/policyfile"
)

// Policy returns the text of a policy that fits, with a comment for each choice.
func Policy(f Findings) []byte {
	w := &writer{}
	w.line("# This file says what commands may do in this project. It applies to everybody who runs")
	w.line("# cloche here. What it takes away applies at once. What it allows, including the presets")
	w.line("# for tools, applies after you have read the file and run: cloche policy trust")
	w.line("version: 1")
	w.presets(f)
	w.paths(f)
	w.network(f)
	w.tests(f)
	return []byte(w.b.String())
}

type writer struct{ b strings.Builder }

func (w *writer) line(format string, args ...any) {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	w.b.WriteString(format + "\n")
}

func (w *writer) presets(f Findings) {
	w.line("")
	w.line("# Start from these; `cloche policy presets NAME` prints one.")
	w.line("presets:")
	w.line("  - workspace  # this folder is writable, secrets are hidden, everything else is readable")
	for _, t := range f.Tools {
		w.line("  - %-9s  # %s", t.Preset, files(t.Files))
	}
	if len(f.Tools) == 0 {
		w.line("  # No toolchain was recognised. There are: go, java, node, python, rust.")
	}
	for _, a := range f.Agents {
		w.line("  # Files of an agent: %s. To run the agent in the sandbox, add its preset:", files(a.Files))
		w.line("  #   cloche run --preset %s -- %s", strings.Join(append(f.presetNames(), a.Preset), ","), a.Preset)
	}
}

func (f Findings) presetNames() []string {
	names := []string{"workspace"}
	for _, t := range f.Tools {
		names = append(names, t.Preset)
	}
	return names
}

func (w *writer) paths(f Findings) {
	w.line("")
	w.line("# The presets already protect git hooks, editor settings and similar files.")
	head := "# "
	if len(f.Variables) > 0 {
		head = ""
		w.line("paths:")
		w.line("  hide:")
		w.line("    # Hidden even if git tracks them; remove an entry to show one.")
		for _, name := range f.Variables {
			w.line("    - %s", policyfile.Quote("?"+name))
		}
	} else {
		w.line("# paths:")
	}
	more := head + "  " + unlessHead(head)
	w.line(more + `write: ["?~/.cache/some-tool"]  # another folder; "?": it may be missing`)
	w.line(more + `read: ["?~/.kube/config"]  # shows one file of a hidden folder`)
}

func (w *writer) network(f Findings) {
	w.line("")
	if len(f.Tools) > 0 {
		w.line("# The presets allow their registries. For no network at all: network: none")
	} else {
		w.line("# There is no network until a host is allowed.")
	}
	for _, h := range f.Doubtful {
		w.line("# Not allowed: %s names %s, which is an address or not a public name. If you trust it: cloche run --allow", policyfile.Comment(h.File), policyfile.Comment(h.Name))
	}
	if len(f.Hosts) == 0 && len(f.Services) == 0 {
		w.line("# network: {allow: [api.example.com:443]}")
		return
	}
	head := ""
	if len(f.Hosts) == 0 {
		head = "# "
	}
	w.line(head + "network:")
	if len(f.Hosts) > 0 {
		w.line("  allow:")
	}
	for _, h := range f.Hosts {
		w.line("    - %s  # %s", policyfile.Quote(h.Name), policyfile.Comment(h.File))
	}
	if len(f.Services) > 0 {
		ports := make([]string, len(f.Services))
		for i, s := range f.Services {
			ports[i] = strconv.Itoa(s.Port)
		}
		w.line("%s  # Ports of this machine that %s publishes. List a port to let commands reach it.", head, policyfile.Comment(f.Services[0].File))
		w.line("%s  %sforward: [%s]", head, unlessHead(head), strings.Join(ports, ", "))
	}
}

// unlessHead returns "# " if head is empty: the line is then commented out although the
// lines around it are not.
func unlessHead(head string) string {
	if head == "" {
		return "# "
	}
	return ""
}

func (w *writer) tests(f Findings) {
	w.line("")
	w.line("# `cloche policy test` checks these lines.")
	w.line("tests:")
	w.line("  - {write: ./src/x, want: allow}")
	w.line("  - {write: ./.cloche.yaml, want: deny}")
	w.line("  - {read: ~/.ssh/id_ed25519, want: deny}")
	for _, name := range f.Variables {
		w.line("  - {read: %s, want: deny}", policyfile.Quote("./"+name))
	}
	for _, h := range f.Hosts {
		w.line("  - {connect: %s, want: allow}", policyfile.Quote(h.Name))
	}
	w.line("  - {connect: example.com:443, want: deny}")
}

// maxNamed is how many files a comment names.
const maxNamed = 3

// files lists names for a comment.
func files(names []string) string {
	shown := make([]string, 0, maxNamed)
	for i, n := range names {
		if i == maxNamed {
			return strings.Join(shown, ", ") + " and " + strconv.Itoa(len(names)-maxNamed) + " more"
		}
		shown = append(shown, policyfile.Comment(n))
	}
	return strings.Join(shown, ", ")
}
