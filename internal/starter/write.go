package starter

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/policyfile"
)

// Policy writes the policy that fits, with a comment for each choice.
func Policy(f Findings) []byte {
	w := &writer{}
	w.line("# What commands may do in this project, by cloche. It holds for everybody who runs")
	w.line("# cloche here. What it hides, it hides at once. What it opens, as the presets for")
	w.line("# tools do, it opens to those who have read it and said: cloche policy trust")
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
	w.line("  - workspace  # this folder is written, secrets are hidden, all else is read")
	for _, t := range f.Tools {
		w.line("  - %-9s  # %s", t.Preset, files(t.Files))
	}
	if len(f.Tools) == 0 {
		w.line("  # No toolchain was recognised. There are: go, java, node, python, rust.")
	}
	for _, a := range f.Agents {
		w.line("  # An agent's files: %s. It runs inside with its preset beside these:", files(a.Files))
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
	w.line("# Hooks, editor settings and the like are kept as they are by the presets.")
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
	w.line(more + `write: ["?~/.cache/some-tool"]  # a folder beside this one; "?": it may be missing`)
	w.line(more + `read: ["?~/.kube/config"]  # shows a single file that is hidden otherwise`)
}

func (w *writer) network(f Findings) {
	w.line("")
	if len(f.Tools) > 0 {
		w.line("# The registries of the presets can be reached. To have no network: network: none")
	} else {
		w.line("# There is no network until a host is allowed.")
	}
	for _, h := range f.Doubtful {
		w.line("# Not allowed: %s names %s, which is an address or no public name. If you know it: cloche run --allow", policyfile.Comment(h.File), policyfile.Comment(h.Name))
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
		w.line("%s  # Ports of this machine that %s publishes; each is open once it is listed.", head, policyfile.Comment(f.Services[0].File))
		w.line("%s  %sforward: [%s]", head, unlessHead(head), strings.Join(ports, ", "))
	}
}

// unlessHead comments a line out where the lines around it are not.
func unlessHead(head string) string {
	if head == "" {
		return "# "
	}
	return ""
}

func (w *writer) tests(f Findings) {
	w.line("")
	w.line("# Claims about all this, which `cloche policy test` checks.")
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
