package pathx

import (
	"strings"
	"sync"
)

const (
	urnScheme = "urn:"
	urnPrefix = "urn:cloche:"

	// maxNesting limits ${A:-${B:-…}}. It is far more than needed, and keeps the parser's
	// recursion small for any input.
	maxNesting = 32
)

type nodeKind uint8

const (
	literalNode  nodeKind = iota
	placeNode             // ~, cwd or a URN
	variableNode          // $NAME and its longer forms
)

// node is one part of a parsed path. The text is the literal, or the name of the place or
// variable.
type node struct {
	kind       nodeKind
	text       string
	hasDefault bool
	fallback   []node
}

// templates are parsed path forms, kept because every plan expands those of the same presets.
// The results of expansions are not kept.
var templates struct {
	mu   sync.RWMutex
	made map[string][]node
}

// Limits on what is kept.
const (
	maxTemplates = 512
	maxTemplate  = 256 // bytes
)

// parsed returns the nodes of a path form. The caller must not change them.
func parsed(s string) ([]node, error) {
	templates.mu.RLock()
	nodes, ok := templates.made[s]
	templates.mu.RUnlock()
	if ok {
		return nodes, nil
	}
	p := parser{in: s}
	nodes, err := p.template(true, 0)
	if err == nil && len(s) <= maxTemplate {
		keepTemplate(strings.Clone(s), nodes)
	}
	return nodes, err
}

func keepTemplate(s string, nodes []node) {
	templates.mu.Lock()
	defer templates.mu.Unlock()
	if templates.made == nil {
		templates.made = map[string][]node{}
	}
	if len(templates.made) < maxTemplates {
		templates.made[s] = nodes
	}
}

// parser turns a path form into nodes. It uses no values.
type parser struct {
	in  string
	pos int
}

// template parses up to the end of the input or, inside braces, up to the closing brace, which
// it does not consume. atStart says that the path begins here.
func (p *parser) template(atStart bool, depth int) ([]node, error) {
	var nodes []node
	head, err := p.head(atStart, depth)
	if err != nil {
		return nil, err
	}
	if head.text != "" {
		nodes = append(nodes, head)
	}
	first := atStart && head.text == ""
	for p.pos < len(p.in) && !p.closes(depth) {
		n, err := p.part(first, depth)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
		first = false
	}
	return nodes, nil
}

// closes reports whether the current character ends the template.
func (p *parser) closes(depth int) bool { return depth > 0 && p.in[p.pos] == '}' }

// head parses a form that may only be at the beginning. It returns a node without text if
// there is none.
func (p *parser) head(atStart bool, depth int) (node, error) {
	word := p.firstWord(depth)
	switch {
	case !atStart && word == "~":
		return node{}, p.fail(p.pos, "~ stands for the home folder only where the path begins; move it there or leave it out")
	case !atStart:
		return node{}, nil
	case isPlace(word):
		p.pos += len(word)
		return node{kind: placeNode, text: word}, nil
	case hasURNScheme(word):
		return node{}, &UnknownURNError{URN: word}
	case strings.HasPrefix(word, "~"):
		return node{}, p.fail(p.pos, "the home folder of another user is not looked up; write its absolute path")
	}
	return node{}, nil
}

// firstWord returns the raw text up to the first slash or the template's end.
func (p *parser) firstWord(depth int) string {
	rest := p.in[p.pos:]
	ends := "/"
	if depth > 0 {
		ends = "/}"
	}
	if i := strings.IndexAny(rest, ends); i >= 0 {
		rest = rest[:i]
	}
	return rest
}

func isPlace(word string) bool {
	switch word {
	case "~", "cwd", urnPrefix + "cwd", urnPrefix + "workspace", urnPrefix + "document", urnPrefix + "self":
		return true
	}
	return false
}

// hasURNScheme ignores case, as RFC 8141 does for the scheme: a URN in capitals is then
// reported as an unknown URN instead of a relative path.
func hasURNScheme(s string) bool {
	return len(s) >= len(urnScheme) && strings.EqualFold(s[:len(urnScheme)], urnScheme)
}

// part parses one literal run or one variable.
func (p *parser) part(first bool, depth int) (node, error) {
	switch p.in[p.pos] {
	case 0:
		return node{}, p.fail(p.pos, "a NUL byte, which no path may hold")
	case '$':
		return p.dollar(first, depth)
	}
	start := p.pos
	for p.pos < len(p.in) && !p.closes(depth) && p.in[p.pos] != '$' && p.in[p.pos] != 0 {
		p.pos++
	}
	return node{kind: literalNode, text: p.in[start:p.pos]}, nil
}

// dollar parses what follows a dollar sign.
func (p *parser) dollar(first bool, depth int) (node, error) {
	start := p.pos
	p.pos++
	switch {
	case strings.HasPrefix(p.in[p.pos:], "$"):
		p.pos++
		return node{kind: literalNode, text: "$"}, nil
	case strings.HasPrefix(p.in[p.pos:], "{"):
		p.pos++
		return p.braces(start, first, depth+1)
	}
	name := p.name()
	if name == "" {
		return node{}, p.fail(start, "no variable name follows the dollar; write $$ for a dollar in a name")
	}
	return node{kind: variableNode, text: name}, nil
}

// braces parses the rest of ${NAME} or ${NAME:-default}, whose dollar sign is at start.
func (p *parser) braces(start int, first bool, depth int) (node, error) {
	if depth > maxNesting {
		return node{}, p.fail(start, "defaults are nested too deeply")
	}
	n := node{kind: variableNode, text: p.name()}
	if n.text == "" {
		return node{}, p.fail(p.pos, "no variable name follows ${; write ${NAME} or ${NAME:-default}")
	}
	if strings.HasPrefix(p.in[p.pos:], ":-") {
		p.pos += len(":-")
		fallback, err := p.template(first, depth)
		if err != nil {
			return node{}, err
		}
		n.hasDefault, n.fallback = true, fallback
	}
	switch {
	case p.pos == len(p.in):
		return node{}, p.fail(start, "the brace is never closed; add }")
	case p.in[p.pos] != '}':
		return node{}, p.fail(p.pos, "only } or :- may follow the name of a variable in braces")
	}
	p.pos++
	return n, nil
}

// name reads a variable name, [A-Za-z_][A-Za-z0-9_]*. It returns "" if there is none.
func (p *parser) name() string {
	start := p.pos
	for p.pos < len(p.in) && isNameByte(p.in[p.pos], p.pos > start) {
		p.pos++
	}
	return p.in[start:p.pos]
}

func isNameByte(c byte, digits bool) bool {
	return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (digits && c >= '0' && c <= '9')
}

func (p *parser) fail(pos int, reason string) error {
	return &SyntaxError{Input: p.in, Pos: pos, Reason: reason}
}
