// Package policyfile writes policy files: the output of cloche policy show, learn, import and init.
package policyfile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Line is one setting of a policy file, or one entry of a list.
type Line struct {
	// Field is the path of keys, for example "paths.write". Item says that the field is a
	// list, and that this line is one entry of it.
	Field string
	Item  bool
	// Value is written as JSON, which YAML reads. A [Raw] is written as it is.
	Value any
	// Heading is a comment above the entry. Entries in a row with the same heading share
	// it. Comment is a comment after the value.
	Heading, Comment string
	// Gap puts an empty line above a section that the line begins.
	Gap bool
}

// A Raw is a value that is already YAML.
type Raw string

// Text returns the lines as the text of a policy file. Lines of one section have to be
// together.
func Text(lines []Line) (string, error) {
	var b strings.Builder
	var open []string // the sections that contain the last line
	heading := ""
	for _, l := range lines {
		value, err := valueText(l.Value)
		if err != nil {
			return "", fmt.Errorf("%s: %w", l.Field, err)
		}
		keys := strings.SplitN(l.Field, ".", 3)
		head, sections := keys[len(keys)-1]+": ", keys[:len(keys)-1]
		if l.Item {
			head, sections = "- ", keys
		}
		for i := range sections {
			if len(open) > i && slices.Equal(open[:i+1], sections[:i+1]) {
				continue
			}
			if i == 0 && l.Gap {
				b.WriteString("\n")
			}
			b.WriteString(strings.Repeat("  ", i) + sections[i] + ":\n")
			heading = ""
		}
		open = sections
		indent := strings.Repeat("  ", len(sections))
		if l.Heading != heading && l.Heading != "" {
			b.WriteString(indent + "# " + Comment(l.Heading) + "\n")
		}
		heading = l.Heading
		b.WriteString(indent + head + value)
		if l.Comment != "" {
			b.WriteString("  # " + Comment(l.Comment))
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

func valueText(v any) (string, error) {
	switch v := v.(type) {
	case Raw:
		return string(v), nil
	case string:
		return Quote(v), nil
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// Quote returns a text in double quotes, as YAML and JSON read it.
func Quote(s string) string {
	if q := strconv.Quote(s); !strings.Contains(q, `\`) {
		return q
	}
	return strconv.QuoteToASCII(s)
}

// maxComment bounds a comment, in characters.
const maxComment = 200

// Comment makes a text safe to put after a "#": one line of printable characters.
func Comment(s string) string {
	clean := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
	if len(clean) > maxComment {
		clean = append(clean[:maxComment], '…')
	}
	return string(clean)
}
