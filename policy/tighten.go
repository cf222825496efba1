package policy

import (
	"fmt"
	"slices"
	"strconv"
)

// This file is what untrusted documents may and may not do.

func indexed(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// ignore records what an untrusted document does not get.
func (m *merger) ignore(l Layered, field, text string) {
	o := l.origin(field)
	if l.Layer == LayerTool && !l.via.IsZero() {
		m.ignoreTool(l)
		return
	}
	if !l.via.IsZero() {
		// The preset itself is innocent: who named it is what counts.
		text, o = text+" ("+o.String()+")", l.via
	}
	m.ignored = append(m.ignored, Ignored{Text: text, Origin: o})
}

// ignoreTool records a preset for a tool as a whole: it has many entries, and whoever
// trusts the file gets all of them.
func (m *merger) ignoreTool(l Layered) {
	whole := Ignored{Text: "all that the " + l.Doc.Name + " opens", Origin: l.via}
	if !slices.Contains(m.ignored, whole) {
		m.ignored = append(m.ignored, whole)
	}
}

// loosen returns the origin of an entry that opens something. ok is false, and
// the entry recorded, where the document may not do that.
func (m *merger) loosen(l Layered, field, format string, arg any) (o Origin, ok bool) {
	if l.Untrusted {
		m.ignore(l, field, fmt.Sprintf(format, arg))
		return Origin{}, false
	}
	return l.origin(field), true
}

// An enum's values run from the strictest to the loosest.
type enum interface {
	Reads | NetworkMode | EnvMode | Tmp | Strength | Fallback
	fmt.Stringer
}

// mergeEnum sets a field to a document's value, if there is one.
func mergeEnum[T enum](m *merger, l Layered, field string, value *T, to *T, origin *Origin) {
	switch {
	case value == nil:
	case !l.Untrusted, *value < *to:
		*to, *origin = *value, l.origin(field)
	case *value > *to:
		m.ignore(l, field, field+": "+(*value).String())
	}
}

// mergeBool sets a field whose true is the looser value.
func mergeBool(m *merger, l Layered, field, text string, value *bool, to *bool, origin *Origin) {
	switch {
	case value == nil:
	case !l.Untrusted, *to && !*value:
		*to, *origin = *value, l.origin(field)
	case *value && !*to:
		m.ignore(l, field, text)
	}
}

// mergeText sets a field of which no value is stricter than another, so that
// an untrusted document cannot set it.
func mergeText(m *merger, l Layered, field string, value *string, to *string, origin *Origin) {
	if value == nil {
		return
	}
	if o, ok := m.loosen(l, field, field+": %s", *value); ok {
		*to, *origin = *value, o
	}
}
