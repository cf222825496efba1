package agents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An Edit is one change of a JSON file: the value of a key, or one more entry at the end
// of a list. Objects and the list on the way are made if they are missing.
type Edit struct {
	Path   []string `json:"path"`
	Value  any      `json:"value"`
	Append bool     `json:"append,omitempty"`
}

// A node is a value in a JSON text, by where it is.
type node struct {
	start, end int
	kind       byte // '{', '[' or 0
	members    []member
}

type member struct {
	key   string
	start int // of the key, or of the element of a list
	value *node
}

// parseText finds the values of a text. With comments, those and commas before a closing
// bracket are allowed. An error names the line.
func parseText(text []byte, comments bool) (*node, error) {
	plain := text
	if comments {
		plain = blankComments(text)
	}
	if len(bytes.TrimSpace(plain)) == 0 {
		return nil, errors.New("is empty; write {} into it, or remove it")
	}
	var any json.RawMessage
	if err := json.Unmarshal(plain, &any); err != nil {
		at := len(plain)
		if bad, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = min(int(bad.Offset), at)
		}
		return nil, fmt.Errorf("line %d: is not valid JSON: %w", 1+bytes.Count(plain[:at], []byte("\n")), err)
	}
	p := &parser{text: plain}
	root := p.value()
	if root.kind != '{' {
		return nil, errors.New("line 1: is not a JSON object")
	}
	return root, nil
}

// blankComments writes spaces over comments and trailing commas, so that every other byte keeps its place.
func blankComments(text []byte) []byte {
	out := bytes.Clone(text)
	comma := -1 // a comma that nothing follows yet
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case c == '"':
			comma = -1
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
		case c == '/' && i+1 < len(out) && (out[i+1] == '/' || out[i+1] == '*'):
			end := len(out)
			if out[i+1] == '/' {
				if n := bytes.IndexByte(out[i:], '\n'); n >= 0 {
					end = i + n
				}
			} else if n := bytes.Index(out[i+2:], []byte("*/")); n >= 0 {
				end = i + 2 + n + 2
			}
			for ; i < end; i++ {
				if out[i] != '\n' {
					out[i] = ' '
				}
			}
			i--
		case c == ',':
			comma = i
		case c == '}' || c == ']':
			if comma >= 0 {
				out[comma] = ' '
			}
			comma = -1
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			comma = -1
		}
	}
	return out
}

// A parser walks over a text that is known to be valid.
type parser struct {
	text []byte
	at   int
}

func (p *parser) space() byte {
	for strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
	return p.text[p.at]
}

func (p *parser) value() *node {
	c := p.space()
	n := &node{start: p.at}
	switch c {
	case '{', '[':
		n.kind = c
		p.at++
		for p.space() != c+2 { // the closing bracket, in ASCII
			if p.text[p.at] == ',' {
				p.at++
				p.space()
			}
			m := member{start: p.at}
			if c == '{' {
				key := p.text[p.at:p.skipString()]
				_ = json.Unmarshal(key, &m.key) // it is valid
				p.space()
				p.at++ // the colon
			}
			m.value = p.value()
			n.members = append(n.members, m)
		}
		p.at++
	case '"':
		p.skipString()
	default:
		for p.at < len(p.text) && strings.IndexByte(" \t\r\n,]}", p.text[p.at]) < 0 {
			p.at++
		}
	}
	n.end = p.at
	return n
}

func (p *parser) skipString() int {
	for p.at++; p.text[p.at] != '"'; p.at++ {
		if p.text[p.at] == '\\' {
			p.at++
		}
	}
	p.at++
	return p.at
}

// get returns the value of a key; nil if there is none. Of several the last counts, as it does for agents.
func (n *node) get(key string) *node {
	for _, m := range slices.Backward(n.members) {
		if n.kind == '{' && m.key == key {
			return m.value
		}
	}
	return nil
}

func (n *node) at(path []string) *node {
	for _, key := range path {
		if n = n.get(key); n == nil {
			return nil
		}
	}
	return n
}

// lookup returns the compact JSON at a path, or "".
func lookup(text []byte, comments bool, path []string) (string, error) {
	root, err := parseText(text, comments)
	if err != nil {
		return "", err
	}
	n := root.at(path)
	if n == nil {
		return "", nil
	}
	return compact(text[n.start:n.end], comments), nil
}

func compact(text []byte, comments bool) string {
	if comments {
		text = blankComments(text)
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return string(text)
	}
	return jsonText(v)
}

// apply makes an edit, and returns the text that a key had before, if it had one.
func (e *Edit) apply(text []byte, comments bool) (changed []byte, before string, err error) {
	root, err := parseText(text, comments)
	if err != nil {
		return nil, "", err
	}
	at, rest := root, e.Path
	for len(rest) > 0 {
		next := at.get(rest[0])
		last := len(rest) == 1
		if next == nil || last && !e.Append {
			break
		}
		if want := byte('{'); next.kind != want && (!last || next.kind != '[') {
			return nil, "", fmt.Errorf("line %d: %q is not what cloche expects there; add the entry by hand (--print shows it)", lineOf(text, next.start), strings.Join(e.Path[:len(e.Path)-len(rest)+1], "."))
		}
		at, rest = next, rest[1:]
	}
	if len(rest) == 1 && !e.Append {
		if old := at.get(rest[0]); old != nil {
			before = string(text[old.start:old.end])
			return slices.Concat(text[:old.start], []byte(jsonText(e.Value)), text[old.end:]), before, nil
		}
	}
	if len(rest) == 0 && at.kind != '[' {
		return nil, "", fmt.Errorf("line %d: %q is not a list; add the entry by hand (--print shows it)", lineOf(text, at.start), strings.Join(e.Path, "."))
	}
	var value = e.Value
	if e.Append && len(rest) > 0 {
		value = []any{value}
	}
	for len(rest) > 1 {
		value = object{rest[len(rest)-1]: value}
		rest = rest[:len(rest)-1]
	}
	key := ""
	if len(rest) == 1 {
		key = jsonText(rest[0]) + ": "
	}
	return insert(text, at, key, value), "", nil
}

// insert puts a member at the end of an object or a list, laid out as its neighbours are.
func insert(text []byte, in *node, key string, value any) []byte {
	outer := indentAt(text, in.start)
	if len(in.members) == 0 {
		unit := "  "
		body := "\n" + outer + unit + key + jsonIndentedAt(value, outer+unit, unit)
		inside := text[in.start+1 : in.end-1]
		if len(bytes.TrimSpace(inside)) == 0 {
			inside = []byte("\n" + outer)
		}
		return slices.Concat(text[:in.start+1], []byte(body), inside, text[in.end-1:])
	}
	last := in.members[len(in.members)-1]
	end := last.value.end
	if !bytes.ContainsRune(text[in.start:in.members[0].start], '\n') {
		return slices.Concat(text[:end], []byte(", "+key+jsonText(value)), text[end:])
	}
	inner := indentAt(text, last.start)
	unit := strings.TrimPrefix(inner, outer)
	if unit == "" {
		unit = "  "
	}
	return slices.Concat(text[:end], []byte(",\n"+inner+key+jsonIndentedAt(value, inner, unit)), text[end:])
}

// undo takes an edit back from a text in which other things may have changed. before is the text that the
// key had. It reports false if the entry is not there as it was written.
func (e *Edit) undo(text []byte, comments bool, before string) ([]byte, bool, error) {
	root, err := parseText(text, comments)
	if err != nil {
		return nil, false, err
	}
	want := jsonText(e.Value)
	parent := root.at(e.Path[:len(e.Path)-1])
	n := root.at(e.Path)
	if n == nil || parent == nil {
		return text, false, nil
	}
	if !e.Append {
		if compact(text[n.start:n.end], comments) != want {
			return text, false, nil
		}
		if before != "" {
			return slices.Concat(text[:n.start], []byte(before), text[n.end:]), true, nil
		}
		return prune(text, root, e.Path), true, nil
	}
	for i, m := range n.members {
		if n.kind == '[' && compact(text[m.value.start:m.value.end], comments) == want {
			if len(n.members) == 1 {
				return prune(text, root, e.Path), true, nil
			}
			return cut(text, n, i), true, nil
		}
	}
	return text, false, nil
}

// prune removes the last key of a path, and the objects on the way that then are empty.
func prune(text []byte, root *node, path []string) []byte {
	depth := len(path) - 1
	for depth > 0 && len(root.at(path[:depth]).members) == 1 {
		depth--
	}
	in := root.at(path[:depth])
	i := slices.IndexFunc(in.members, func(m member) bool { return m.key == path[depth] })
	return cut(text, in, i)
}

// cut removes a member with the comma that goes with it.
func cut(text []byte, in *node, i int) []byte {
	from, to := in.members[i].start, in.members[i].value.end
	switch {
	case len(in.members) == 1: // with a comma that may follow it; comments stay
		rest := bytes.TrimPrefix(bytes.TrimSpace(text[to:in.end-1]), []byte(","))
		inside := slices.Concat(text[in.start+1:from], rest)
		if len(bytes.TrimSpace(inside)) == 0 {
			inside = nil
		} else if len(rest) > 0 {
			inside = append(inside, '\n') // it may be a comment to the end of the line
		}
		return slices.Concat(text[:in.start+1], inside, text[in.end-1:])
	case i > 0:
		from = in.members[i-1].value.end
	default:
		to = in.members[1].start
	}
	return slices.Concat(text[:from], text[to:])
}

func lineOf(text []byte, at int) int { return 1 + bytes.Count(text[:at], []byte("\n")) }

// indentAt is the white space at the beginning of a line.
func indentAt(text []byte, at int) string {
	line := text[bytes.LastIndexByte(text[:at], '\n')+1:]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// jsonText is a value as JSON in one line, without escapes that only HTML needs.
func jsonText(v any) string { return strings.TrimSpace(encode(v, "", "")) }

func jsonIndented(v any) string { return encode(v, "", "  ") }

func jsonIndentedAt(v any, prefix, unit string) string {
	return strings.TrimSpace(encode(v, prefix, unit))
}

func encode(v any, prefix, unit string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent(prefix, unit)
	if err := e.Encode(v); err != nil {
		return strconv.Quote(err.Error()) // only texts, numbers, lists and objects are encoded
	}
	return b.String()
}
