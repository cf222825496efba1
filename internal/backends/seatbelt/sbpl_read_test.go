package seatbelt

import (
	"errors"
	"fmt"
	"strings"
)

// The files sbpl_*_test.go read profiles of macOS's sandbox and say what they allow, so
// that the meaning of a profile can be tested where there is no such sandbox. They share
// nothing with the compiler. They know the part of the language that it writes, and take
// nothing else: an operation or a filter that they do not know is an error, because macOS
// would refuse the whole profile for a misspelt one.

// A node is a list, a symbol or a string of the profile.
type node struct {
	list   []node
	symbol string
	text   string
	isText bool
	isList bool
}

// A reader takes a text apart.
type reader struct {
	text string
	at   int
}

var errEnd = errors.New("the text ends within a form")

// read returns all forms of a text.
func read(text string) ([]node, error) {
	r := &reader{text: text}
	var forms []node
	for r.skip(); r.at < len(r.text); r.skip() {
		n, err := r.form()
		if err != nil {
			return nil, fmt.Errorf("at byte %d: %w", r.at, err)
		}
		forms = append(forms, n)
	}
	return forms, nil
}

// skip passes white space and comments.
func (r *reader) skip() {
	for r.at < len(r.text) {
		switch c := r.text[r.at]; {
		case c == ';':
			end := strings.IndexByte(r.text[r.at:], '\n')
			if end < 0 {
				r.at = len(r.text)
				return
			}
			r.at += end
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			r.at++
		default:
			return
		}
	}
}

func (r *reader) form() (node, error) {
	switch c := r.text[r.at]; c {
	case '(':
		return r.listForm()
	case ')':
		return node{}, errors.New("a closing parenthesis too many")
	case '"':
		return r.stringForm()
	case '#', '\'', '`':
		return node{}, fmt.Errorf("%q is not read here", c)
	}
	start := r.at
	for r.at < len(r.text) && !strings.ContainsRune("()\"; \n\t\r", rune(r.text[r.at])) {
		r.at++
	}
	return node{symbol: r.text[start:r.at]}, nil
}

func (r *reader) listForm() (node, error) {
	n := node{isList: true}
	r.at++
	for {
		r.skip()
		if r.at == len(r.text) {
			return node{}, errEnd
		}
		if r.text[r.at] == ')' {
			r.at++
			return n, nil
		}
		item, err := r.form()
		if err != nil {
			return node{}, err
		}
		n.list = append(n.list, item)
	}
}

// stringForm reads a string. After a backslash only those characters are taken
// that stand for themselves everywhere; what "\n" or "\x41" mean depends on the
// reader.
func (r *reader) stringForm() (node, error) {
	var b strings.Builder
	for r.at++; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; c {
		case '"':
			r.at++
			return node{isText: true, text: b.String()}, nil
		case '\\':
			r.at++
			if r.at == len(r.text) {
				return node{}, errEnd
			}
			if e := r.text[r.at]; e != '"' && e != '\\' {
				return node{}, fmt.Errorf(`the escape \%c is not read here`, e)
			}
			b.WriteByte(r.text[r.at])
		case 0:
			return node{}, errors.New("NUL in a string")
		default:
			b.WriteByte(c)
		}
	}
	return node{}, errEnd
}
