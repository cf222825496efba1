package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// The keys stand in the document between these two.
var keysRegion = regexp.MustCompile(`(?s)(<!-- keys -->\n).*?(<!-- end -->)`)

// fillReference returns the text with its table of keys made anew.
func fillReference(text string) (string, error) {
	if !keysRegion.MatchString(text) {
		return "", errors.New("there is no place for the keys")
	}
	s, err := documentSchema()
	if err != nil {
		return "", err
	}
	r := reference{known: map[string]bool{}}
	r.object("", s)
	table := "\n| key | what it takes | meaning |\n| --- | --- | --- |\n" + strings.Join(r.rows, "") + "\n"
	return keysRegion.ReplaceAllStringFunc(text, func(old string) string {
		m := keysRegion.FindStringSubmatch(old)
		return m[1] + table + m[2]
	}), nil
}

// A reference is the rows of the table, and the kinds of entries that have theirs:
// lists of paths have the same.
type reference struct {
	rows  []string
	known map[string]bool
}

// object adds the keys of an object.
func (r *reference) object(prefix string, s *jsonschema.Schema) {
	for _, name := range keysOf(s) {
		key, p := prefix+name, s.Properties[name]
		r.rows = append(r.rows, fmt.Sprintf("| `%s` | %s | %s |\n", key, takes(p), cell(p.Description)))
		for _, form := range forms(p) {
			r.object(key+".", form)
			if form.Items != nil {
				r.entries(key+"[].", form.Items)
			}
		}
	}
}

// forms are what a value may be: a section mostly has a short form, too.
func forms(s *jsonschema.Schema) []*jsonschema.Schema {
	if all := slices.Concat(s.AnyOf, s.OneOf); len(all) > 0 {
		return all
	}
	return []*jsonschema.Schema{s}
}

// entries adds the keys of the entries of a list, once for each kind of entry.
func (r *reference) entries(prefix string, s *jsonschema.Schema) {
	for _, form := range forms(s) {
		kind, _ := json.Marshal(form) // it is one that is printed
		if len(form.Properties) > 0 && !r.known[string(kind)] {
			r.known[string(kind)] = true
			r.object(prefix, form)
		}
	}
}

// keysOf are the keys in the order of the type, or by name.
func keysOf(s *jsonschema.Schema) []string {
	if len(s.PropertyOrder) == len(s.Properties) {
		return s.PropertyOrder
	}
	keys := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		keys = append(keys, name)
	}
	slices.Sort(keys)
	return keys
}

var kinds = map[string]string{"array": "a list", "object": "a section", "string": "text", "boolean": "`true` or `false`", "integer": "a number"}

// takes says what a key takes: the words that it knows, or kinds of values.
func takes(s *jsonschema.Schema) string {
	var words []string
	for _, form := range forms(s) {
		for _, w := range form.Enum {
			words = append(words, fmt.Sprintf("`%v`", w))
		}
		if len(form.Enum) > 0 {
			continue
		}
		for _, t := range append(form.Types, form.Type) {
			if t != "" {
				words = append(words, kinds[t])
			}
		}
	}
	return strings.Join(words, ", ")
}

// cell is a text as it is written in the cell of a table.
func cell(text string) string { return strings.NewReplacer("|", `\|`, "*", `\*`).Replace(text) }
