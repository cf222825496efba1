package policy

import (
	"fmt"
	"slices"
	"strconv"
)

// This file decides what untrusted documents may do.

func indexed(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// ignore records something that an untrusted document asked for and did not get.
func (m *merger) ignore(l layered, o Origin, text string) {
	switch {
	case l.via.IsZero():
		m.ignored = append(m.ignored, Ignored{Text: text, Origin: o})
	case l.layer == LayerTool:
		// A preset for a tool is recorded once, as a whole: it has many entries.
		whole := Ignored{Text: "all that the " + l.doc.Name + " opens", Origin: l.via}
		if !slices.Contains(m.ignored, whole) {
			m.ignored = append(m.ignored, whole)
		}
	default:
		// The document that names the preset is at fault, not the preset.
		m.ignored = append(m.ignored, Ignored{Text: text + " (" + o.String() + ")", Origin: l.via})
	}
}

// loosen returns the origin of a field that opens something. If the document may not
// do that, ok is false and the field is recorded as ignored.
func (m *merger) loosen(l layered, field, format string, arg any) (o Origin, ok bool) {
	o = l.origin(field)
	return o, m.loosenAt(l, o, format, arg)
}

// loosenAt is loosen for an entry whose origin is known already.
func (m *merger) loosenAt(l layered, o Origin, format string, arg any) bool {
	if l.untrusted {
		m.ignore(l, o, fmt.Sprintf(format, arg))
	}
	return !l.untrusted
}

// An enum's values are ordered from the strictest to the loosest.
type enum interface {
	Reads | NetworkMode | EnvMode | Tmp | Strength | Fallback
	fmt.Stringer
}

// mergeEnum sets a field to a document's value, if there is one.
func mergeEnum[T enum](m *merger, l layered, field string, value *T, to *T, origin *Origin) {
	switch {
	case value == nil:
	case !l.untrusted, *value < *to:
		*to, *origin = *value, l.origin(field)
	case *value > *to:
		m.ignore(l, l.origin(field), field+": "+(*value).String())
	}
}

// mergeBool sets a boolean field, where true is the looser value.
func mergeBool(m *merger, l layered, field, text string, value *bool, to *bool, origin *Origin) {
	switch {
	case value == nil:
	case !l.untrusted, *to && !*value:
		*to, *origin = *value, l.origin(field)
	case *value && !*to:
		m.ignore(l, l.origin(field), text)
	}
}

// mergeTrusted sets a field whose values cannot be compared by strictness. So an untrusted
// document cannot set it.
func mergeTrusted[T any](m *merger, l layered, field string, value *T, to *T, origin *Origin) {
	if value == nil {
		return
	}
	if o, ok := m.loosen(l, field, field+": %v", *value); ok {
		*to, *origin = *value, o
	}
}
