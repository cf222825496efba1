package review

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// A Hunk is a group of edits with the lines around them.
type Hunk struct {
	Edits []Edit
	// From, To and NewFrom, NewTo are the lines with their surroundings.
	From, To, NewFrom, NewTo int
}

// A Patch is how the text of a file changed.
type Patch struct {
	old, now [][]byte
	Hunks    []Hunk
}

// context is how many lines around an edit are shown.
const context = 3

// NewPatch compares two texts.
func NewPatch(old, now []byte) *Patch {
	p := &Patch{old: splitLines(old), now: splitLines(now)}
	for _, e := range diffLines(p.old, p.now) {
		h := Hunk{
			Edits: []Edit{e},
			From:  max(0, e.From-context), To: min(len(p.old), e.To+context),
			NewFrom: max(0, e.NewFrom-context), NewTo: min(len(p.now), e.NewTo+context),
		}
		if n := len(p.Hunks); n > 0 && h.From <= p.Hunks[n-1].To {
			last := &p.Hunks[n-1]
			last.Edits, last.To, last.NewTo = append(last.Edits, e), h.To, h.NewTo
			continue
		}
		p.Hunks = append(p.Hunks, h)
	}
	return p
}

// Count returns the numbers of added and removed lines.
func (p *Patch) Count() (added, removed int) {
	for _, h := range p.Hunks {
		for _, e := range h.Edits {
			added += e.NewTo - e.NewFrom
			removed += e.To - e.From
		}
	}
	return added, removed
}

// With returns the old text with some hunks applied.
func (p *Patch) With(hunks []Hunk) []byte {
	var out [][]byte
	at := 0
	for _, h := range hunks {
		for _, e := range h.Edits {
			out = append(out, p.old[at:e.From]...)
			out = append(out, p.now[e.NewFrom:e.NewTo]...)
			at = e.To
		}
	}
	return bytes.Join(append(out, p.old[at:]...), nil)
}

// Lines returns a hunk as lines of a unified diff, each with its newline.
func (p *Patch) Lines(h Hunk) []string {
	out := []string{fmt.Sprintf("@@ -%s +%s @@\n", span(h.From, h.To), span(h.NewFrom, h.NewTo))}
	add := func(mark string, lines [][]byte) {
		for _, line := range lines {
			text := mark + string(line)
			if !strings.HasSuffix(text, "\n") {
				text += "\n\\ No newline at end of file\n"
			}
			out = append(out, text)
		}
	}
	at := h.From
	for _, e := range h.Edits {
		add(" ", p.old[at:e.From])
		add("-", p.old[e.From:e.To])
		add("+", p.now[e.NewFrom:e.NewTo])
		at = e.To
	}
	add(" ", p.old[at:h.To])
	return out
}

func span(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprint(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

// Header returns the lines of a diff before its hunks, in the format of git, so that git apply takes them. Paths are relative to the root.
func Header(c *Change, old, now *Content) []string {
	from := c.Path
	if c.From != "" {
		from = c.From
	}
	a, b := gitQuote("a/"+from), gitQuote("b/"+c.Path)
	out := []string{"diff --git " + a + " " + b}
	oldMode, newMode := gitMode(old), gitMode(now)
	switch {
	case !old.Exists:
		out = append(out, "new file mode "+newMode)
	case !now.Exists:
		out = append(out, "deleted file mode "+oldMode)
	case old.Type == File && now.Type == File && old.Mode != now.Mode:
		out = append(out, fmt.Sprintf("old mode 100%03o", old.Mode), fmt.Sprintf("new mode 100%03o", now.Mode))
	}
	if c.Kind == Renamed {
		out = append(out, "rename from "+gitQuote(from), "rename to "+gitQuote(c.Path))
	}
	if bytes.Equal(old.Text, now.Text) && !old.TooLarge && !now.TooLarge {
		return out
	}
	if !old.Exists {
		a = "/dev/null"
	}
	if !now.Exists {
		b = "/dev/null"
	}
	if old.IsBinary() || now.IsBinary() {
		// Without the line "diff --git", git apply passes over it, and takes the rest.
		out[0] = "Binary files " + a + " and " + b + " differ"
		return []string{strings.Join(out, ", ")}
	}
	return append(out, "--- "+tabbed(a), "+++ "+tabbed(b))
}

// tabbed ends a name with a space in it, as git does for patch(1).
func tabbed(name string) string {
	if strings.Contains(name, " ") {
		return name + "\t"
	}
	return name
}

// gitMode is the mode that git knows.
func gitMode(c *Content) string {
	switch {
	case c.Type == Link:
		return "120000"
	case c.Mode&0o100 != 0:
		return "100755"
	}
	return "100644"
}

// gitQuote quotes a name as git does in diffs, so that it has no control characters.
func gitQuote(name string) string {
	if !slices.ContainsFunc([]byte(name), func(c byte) bool { return c < 0x20 || c >= 0x7f || c == '"' || c == '\\' }) {
		return name
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(name) {
		switch short := strings.IndexByte("\a\b\t\n\v\f\r\"\\", c); {
		case short >= 0:
			b.WriteString(`\` + string(`abtnvfr"\`[short]))
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
