package gitguard

import (
	"errors"
	"fmt"
	"strings"
)

// An entry is one setting: `section.key` or `section.subsection.key`, in small
// letters but for the subsection.
type entry struct {
	name  string
	value string
	// bare is a key without `=`, which is a true boolean.
	bare bool
	// continued is a value of more than one line. Readers that are simpler than
	// git see a section or a key in the second line.
	continued bool
	// start and end are where the setting is in the text.
	start, end int
}

// plain is the entry as git sees it.
func (e entry) plain() entry {
	return entry{name: e.name, value: e.value, bare: e.bare}
}

// split takes the name apart. The subsection may hold dots.
func (e entry) split() (section, subsection, key string, nested bool) {
	section, rest, _ := strings.Cut(e.name, ".")
	if i := strings.LastIndexByte(rest, '.'); i >= 0 {
		return section, rest[:i], rest[i+1:], true
	}
	return section, "", rest, false
}

var errControl = errors.New("control characters are not accepted")

// parseConfig reads the syntax of git's configuration files, strictly: what it
// accepts, git (config.c) reads the same, in every version. What versions or
// other readers take differently is an error: control characters and carriage
// returns, a byte order mark, tabs within a value, empty section names.
func parseConfig(content []byte) ([]entry, error) {
	p := parser{text: string(content), line: 1}
	for _, b := range content {
		if b < ' ' && b != '\n' && b != '\t' || b == 0x7f {
			return nil, errControl
		}
	}
	for !p.end() {
		if err := p.item(); err != nil {
			return nil, fmt.Errorf("line %d: %w", p.line, err)
		}
	}
	return p.entries, nil
}

type parser struct {
	text    string
	at      int
	line    int
	section string
	entries []entry
}

func (p *parser) end() bool { return p.at >= len(p.text) }

// next returns the next character; the end of the file reads as a newline.
func (p *parser) next() byte {
	if p.end() {
		return '\n'
	}
	b := p.text[p.at]
	p.at++
	if b == '\n' {
		p.line++
	}
	return b
}

// item reads one thing at the level of lines.
func (p *parser) item() error {
	b := p.next()
	switch {
	case isSpace(b):
		return nil
	case b == '#' || b == ';':
		p.skipLine()
		return nil
	case b == '[':
		return p.header()
	case isLetter(b):
		p.at--
		return p.setting()
	}
	return fmt.Errorf("%q begins neither a section nor a setting", b)
}

// header reads `section]`, `section.sub]` or `section "subsection"]`.
func (p *parser) header() error {
	start := p.at
	for !p.end() && (isKeyByte(p.text[p.at]) || p.text[p.at] == '.') {
		p.at++
	}
	name := strings.ToLower(p.text[start:p.at])
	if name == "" || !isLetter(name[0]) {
		return errors.New("the name of a section must begin with a letter")
	}
	switch b := p.next(); b {
	case ']':
		p.section = name + "."
		return nil
	case ' ', '\t':
		return p.subsection(name)
	default:
		return fmt.Errorf("%q in the name of a section", b)
	}
}

func (p *parser) subsection(section string) error {
	b := p.next()
	for b == ' ' || b == '\t' {
		b = p.next()
	}
	if b != '"' {
		return errors.New("a subsection must be quoted")
	}
	var name strings.Builder
	for {
		switch b = p.next(); b {
		case '\n':
			return errors.New("a subsection must end on its line")
		case '"':
			p.section = section + "." + name.String() + "."
			if p.next() != ']' {
				return errors.New("a section must end with ]")
			}
			return nil
		case '\\':
			if b = p.next(); b == '\n' {
				return errors.New("a subsection must end on its line")
			}
		}
		name.WriteByte(b)
	}
}

// setting reads `key` or `key = value`.
func (p *parser) setting() error {
	if p.section == "" {
		return errors.New("a setting outside of a section")
	}
	start := p.at
	for !p.end() && isKeyByte(p.text[p.at]) {
		p.at++
	}
	e := entry{name: p.section + strings.ToLower(p.text[start:p.at]), start: start}
	b := p.next()
	for b == ' ' || b == '\t' {
		b = p.next()
	}
	var err error
	switch b {
	case '\n':
		e.bare = true
	case '=':
		e.value, e.continued, err = p.value()
	default:
		err = fmt.Errorf("%q after a key", b)
	}
	e.end = p.at
	p.entries = append(p.entries, e)
	return err
}

// value reads up to the end of the line: blanks around it and a comment are
// dropped, quotes may surround any part, a backslash joins lines.
func (p *parser) value() (value string, continued bool, err error) {
	var out strings.Builder
	quoted, blanks := false, ""
	for {
		b := p.next()
		switch {
		case b == '\n' && quoted:
			return "", false, errors.New("a quote is not closed")
		case b == '\n':
			return out.String(), continued, nil
		case (b == ';' || b == '#') && !quoted:
			p.skipLine()
			return out.String(), continued, nil
		case isSpace(b) && !quoted:
			if out.Len() > 0 {
				blanks += string(b)
			}
			continue
		}
		if strings.Contains(blanks, "\t") {
			return "", false, errors.New("a tab in a value must be quoted")
		}
		out.WriteString(blanks)
		blanks = ""
		switch b {
		case '"':
			quoted = !quoted
		case '\\':
			joined, err := p.escape(&out)
			if err != nil {
				return "", false, err
			}
			continued = continued || joined
		default:
			out.WriteByte(b)
		}
	}
}

// escape reads what follows a backslash in a value; joined says that it was
// the end of a line.
func (p *parser) escape(out *strings.Builder) (joined bool, err error) {
	if p.end() {
		return false, errors.New("a backslash at the end of the file")
	}
	b := p.next()
	if b == '\n' {
		return true, nil
	}
	unescaped, known := escapes[b]
	if !known {
		return false, fmt.Errorf("the escape \\%c", b)
	}
	out.WriteByte(unescaped)
	return false, nil
}

func (p *parser) skipLine() {
	for p.next() != '\n' {
	}
}

// escapes are those of values, without \b.
var escapes = map[byte]byte{'t': '\t', 'n': '\n', '\\': '\\', '"': '"'}

func isSpace(b byte) bool  { return b == ' ' || b == '\t' || b == '\n' }
func isLetter(b byte) bool { return 'a' <= lower(b) && lower(b) <= 'z' }
func isKeyByte(b byte) bool {
	return isLetter(b) || '0' <= b && b <= '9' || b == '-'
}
