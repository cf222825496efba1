package policy

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxFileSize is the largest policy file that is read, in bytes.
const MaxFileSize = 1 << 20

// Parse reads a document that has no folder of its own: a user's file or a
// preset. Relative paths are errors. The name is what errors and origins call
// it. YAML and JSON are both accepted. Every error that is found is reported;
// each is a [*Error], joined by [errors.Join].
func Parse(name string, data []byte) (*Document, error) { return ParseIn(name, "", data) }

// ParseIn is [Parse] for a document whose relative paths start at base, an
// absolute folder.
func ParseIn(name, base string, data []byte) (*Document, error) {
	d := &Document{content: document{Name: name, Base: base}}
	doc := &d.content
	var err error
	if doc.origins, err = decodeInto(name, data, doc, doc.fromBool); err != nil {
		return nil, err
	}
	if err := doc.check(); err != nil {
		return nil, err
	}
	return d, nil
}

// fromBool reads a document that consists only of true or false. It reports whether it did.
func (d *document) fromBool(root *yaml.Node) bool {
	if root.Kind != yaml.ScalarNode || root.ShortTag() != "!!bool" {
		return false
	}
	on := isTrue(root.Value)
	d.Enabled = &on
	return true
}

// decodeInto decodes one YAML document into target, a pointer to a struct. If short returns
// true, it has handled the document itself.
func decodeInto(name string, data []byte, target any, short func(*yaml.Node) bool) (map[string]Origin, error) {
	root, err := parseYAML(name, data)
	if err != nil {
		return nil, err
	}
	d := &decoder{name: name, origins: map[string]Origin{}}
	if root == nil {
		return d.origins, nil
	}
	d.origins[""] = originOf(root)
	if !short(root) {
		d.value(root, "", reflect.ValueOf(target).Elem())
	}
	return d.origins, joinErrors(d.errs)
}

// parseYAML returns the root node of the only document, or nil if it is empty.
func parseYAML(name string, data []byte) (*yaml.Node, error) {
	if err := checkBytes(name, data); err != nil {
		return nil, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, yamlError(name, err)
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		return nil, place(faultf("keep one document in the file", "a second document starts here"), originOf(&more).in(name), "")
	case !errors.Is(err, io.EOF):
		return nil, yamlError(name, err)
	}
	if len(doc.Content) == 0 || isNull(doc.Content[0]) {
		return nil, nil
	}
	return doc.Content[0], nil
}

// checkBytes rejects data that is too large or not UTF-8 text.
func checkBytes(name string, data []byte) error {
	if len(data) > MaxFileSize {
		return byteError(name, nil, "the file is larger than "+size(MaxFileSize).String(), "")
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return byteError(name, data[:i], "holds a NUL byte", "remove it")
	}
	if utf8.Valid(data) {
		return nil
	}
	i := 0
	for r, n := utf8.DecodeRune(data); r != utf8.RuneError || n > 1; r, n = utf8.DecodeRune(data[i:]) {
		i += n
	}
	return byteError(name, data[:i], "holds a byte that is not UTF-8", "save the file as UTF-8")
}

// byteError returns an error at the position after the given text.
func byteError(name string, before []byte, message, fix string) error {
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return &Error{Origin: Origin{Source: name, Line: line, Column: column}, Message: message, Fix: fix}
}

// yamlError turns an error of the YAML library into one with a position. The library reports
// only the line, and only in the error's text.
func yamlError(name string, err error) error {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := int64(1)
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		number, text, _ := strings.Cut(rest, ": ")
		if n, ok := parseDigits(number); ok && text != "" {
			line, message = max(1, n), text
		}
	}
	e := &Error{Origin: Origin{Source: name, Line: int(line), Column: 1}, Message: "not valid YAML: " + message}
	if strings.Contains(message, "alphabetic or numeric") || strings.Contains(message, "cannot start any token") {
		e.Fix = "put text that starts with * & ! % @ or ` in quotes, and indent with spaces"
	}
	return e
}
