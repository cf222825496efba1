package learn

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/cloche-dev/cloche/policy"
)

// A File is the policy file that comes of learning.
type File struct {
	Machine
	// Base is the folder that the file will be in: relative paths start there.
	Base string
	// Command is what was run, as it may be shown to anybody.
	Command string
	// Start is what the caller asked for beforehand, with absolute paths; nil is
	// nothing. Values of variables are not written.
	Start *policy.Document
	// Given and Proposed are rules; the command ran with the former only.
	Given, Proposed []Need
	// Left is what is not opened.
	Left []Need
	// Outcome says how the last run ended.
	Outcome string
}

// Text writes the file.
func (f *File) Text() (string, error) {
	b := &strings.Builder{}
	f.head(b)
	start, err := f.startFields()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(b, "version: %d\n", policy.Version)
	for _, line := range start {
		b.WriteString(line + "\n")
	}
	f.paths(b)
	f.network(b)
	f.sockets(b)
	f.leftOut(b)
	return b.String(), nil
}

func (f *File) head(b *strings.Builder) {
	fmt.Fprintf(b, "# What this command needs, learned by running it:\n#   %s\n", comment(f.Command))
	if f.Outcome != "" {
		fmt.Fprintf(b, "# %s\n", comment(f.Outcome))
	}
	b.WriteString("# It holds what these runs were refused and no more. Read it before you trust it.\n")
}

// startFields are the parts of Start that are not lists of paths or of hosts, one
// line each.
func (f *File) startFields() ([]string, error) {
	if f.Start == nil {
		return nil, nil
	}
	d := *f.Start
	d.Version, d.Paths, d.Network, d.Sockets = nil, nil, nil, nil
	if d.Env != nil {
		env := *d.Env
		env.Set = nil
		d.Env = &env
		if env.Policy == nil && env.Pass == nil {
			d.Env = nil
		}
	}
	data, err := json.Marshal(&d)
	if err != nil {
		return nil, fmt.Errorf("write the options that were given: %w", err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("write the options that were given: %w", err)
	}
	var lines []string
	for name, value := range fields {
		lines = append(lines, name+": "+string(value))
	}
	slices.Sort(lines)
	return lines, nil
}

// An entry is one line of a list.
type entry struct {
	heading, text string
}

// section writes a list below its key, entries of one heading together.
func section(b *strings.Builder, indent, key string, entries []entry) {
	if len(entries) == 0 {
		return
	}
	b.WriteString(indent + key + ":\n")
	last := ""
	for _, e := range entries {
		if e.heading != last {
			b.WriteString(indent + "  # " + e.heading + "\n")
			last = e.heading
		}
		b.WriteString(indent + "  - " + e.text + "\n")
	}
}

func (f *File) paths(b *strings.Builder) {
	write, read := f.pathEntries(Write), f.pathEntries(Read)
	var hide, protect, found []entry
	if f.Start != nil && f.Start.Paths != nil {
		p := f.Start.Paths
		write = slices.Concat(f.asked(p.Write), write)
		read = slices.Concat(f.asked(p.Read), read)
		hide, protect, found = f.asked(p.Hide), f.asked(p.Protect), f.asked(p.HideFound)
	}
	if len(write)+len(read)+len(hide)+len(protect)+len(found) == 0 {
		return
	}
	b.WriteString("\npaths:\n")
	section(b, "  ", "write", write)
	section(b, "  ", "read", read)
	section(b, "  ", "hide", hide)
	section(b, "  ", "hide_found", found)
	section(b, "  ", "protect", protect)
}

// asked are the entries that the caller started from, as they were written.
func (f *File) asked(list []policy.PathEntry) []entry {
	var out []entry
	for _, e := range list {
		out = append(out, entry{"Asked for.", flow(e)})
	}
	return out
}

// The headings under which rules are grouped, in their order.
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

// rules are the entries of one kind, by heading.
func (f *File) rules(kind Kind, text func(*Need) string) []entry {
	var out []entry
	add := func(needs []Need, heading func(*Need) string) {
		for i := range needs {
			if n := &needs[i]; n.Kind == kind {
				out = append(out, entry{heading(n), text(n) + who(n)})
			}
		}
	}
	add(f.Given, headingOf)
	add(f.Proposed, func(*Need) string { return headingUntried })
	slices.SortStableFunc(out, func(a, b entry) int {
		return slices.Index(headingOrder, a.heading) - slices.Index(headingOrder, b.heading)
	})
	return out
}

func (f *File) pathEntries(kind Kind) []entry {
	return f.rules(kind, func(n *Need) string { return pathEntry(f.form(n.Path), n) })
}

// pathEntry is an entry in its short form where that says all of it.
func pathEntry(p string, n *Need) string {
	if !n.Optional && n.Why == "" && !strings.HasPrefix(p, "?") {
		return scalar(p)
	}
	parts := []string{"path: " + scalar(p)}
	if n.Optional {
		parts = append(parts, "optional: true")
	}
	if n.Why != "" {
		parts = append(parts, "reason: "+scalar(comment(n.Why)))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (f *File) network(b *strings.Builder) {
	plain := func(n *Need) string { return scalar(n.Host) }
	allow, forward := f.rules(Connect, plain), f.rules(Forward, plain)
	var deny, publish []entry
	mode := ""
	if f.Start != nil && f.Start.Network != nil {
		n := f.Start.Network
		if n.Mode != nil && (len(allow) == 0 || *n.Mode == policy.NetworkUser || *n.Mode == policy.NetworkHost) {
			mode += "  mode: " + flow(n.Mode) + "\n"
		}
		if n.Link != nil {
			mode += "  link: " + flow(n.Link) + "\n"
		}
		allow = slices.Concat(started(n.Allow), allow)
		forward = slices.Concat(started(n.Forward), forward)
		deny, publish = started(n.Deny), started(n.Publish)
	}
	if mode == "" && len(allow)+len(deny)+len(publish)+len(forward) == 0 {
		return
	}
	b.WriteString("\nnetwork:\n" + mode)
	section(b, "  ", "allow", allow)
	section(b, "  ", "deny", deny)
	section(b, "  ", "publish", publish)
	section(b, "  ", "forward", forward)
}

func started[T any](list []T) []entry {
	var out []entry
	for _, e := range list {
		out = append(out, entry{"Asked for.", flow(e)})
	}
	return out
}

func (f *File) sockets(b *strings.Builder) {
	list := f.rules(Socket, func(n *Need) string { return scalar(f.form(n.Path)) })
	if f.Start != nil {
		list = slices.Concat(started(f.Start.Sockets), list)
	}
	if len(list) > 0 {
		b.WriteString("\n")
	}
	section(b, "", "sockets", list)
}

// leftOut lists what is not opened, as comments.
func (f *File) leftOut(b *strings.Builder) {
	if len(f.Left) == 0 {
		return
	}
	b.WriteString("\n# Left out. To open one of these, learn again with --include, or write a rule.\n")
	for i := range f.Left {
		n := &f.Left[i]
		line := string(n.Kind) + " " + f.short(n.Subject())
		if n.Why != "" {
			line += ": " + n.Why
		}
		b.WriteString("#   " + comment(line) + comment(who(n)) + "\n")
	}
}

// who names the programs that were refused, as a comment behind an entry.
func who(n *Need) string {
	const most = 4
	list := n.Programs
	if len(list) == 0 {
		return ""
	}
	more := ""
	if len(list) > most {
		list, more = list[:most], ", …"
	}
	return "  # " + comment(strings.Join(list, ", ")+more)
}

// comment makes any text safe behind a "#": one line of printable characters.
func comment(s string) string {
	const most = 200
	clean := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if r := []rune(clean); len(r) > most {
		clean = string(r[:most]) + "…"
	}
	return clean
}

// scalar is a text as YAML reads it back, plain where nothing in it has a meaning
// there.
func scalar(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+$@=~"
	if word := strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "~/"); word && strings.Trim(s, safe) == "" {
		return s
	}
	if s != "" && unicode.IsLetter(rune(s[0])) && strings.Contains(s, " ") && strings.Trim(s, safe+" ") == "" {
		return s // words
	}
	return flow(s)
}

// flow is a value on one line, as JSON, which YAML reads.
func flow(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return `""` // not reached: what is written here are texts and entries
	}
	return strings.TrimSuffix(b.String(), "\n")
}
