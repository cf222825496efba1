package policy

import (
	"cmp"
	"encoding"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// maxNodes limits how many nodes a document may visit. With aliases, a small file can visit
// the same node many times.
const maxNodes = 200_000

// A shorthand is a section or an entry that may be written as one scalar.
// The tag is "!!str" or "!!bool".
type shorthand interface{ fromScalar(tag, value string) error }

// A decoder fills Go values from YAML nodes. It is strict: unknown keys, duplicate keys, empty
// values, tags and wrong types are errors. It continues after an error so that all of them are
// reported, and it records the position of each value.
type decoder struct {
	name    string
	origins map[string]Origin
	errs    []*Error
	nodes   int
	// tooMany: maxNodes was reached, and that was reported.
	tooMany bool
}

func (d *decoder) fail(n *yaml.Node, field string, err error) {
	if len(d.errs) < maxErrors {
		d.errs = append(d.errs, place(err, originOf(n).in(d.name), field))
	}
}

// originOf returns the position of a node. The document's name is added when the origin is
// used.
func originOf(n *yaml.Node) Origin { return Origin{Line: max(1, n.Line), Column: max(1, n.Column)} }

// in returns the origin with a source, if it has none.
func (o Origin) in(source string) Origin {
	o.Source = cmp.Or(o.Source, source)
	return o
}

// follow returns the node that an alias stands for, with the position of the alias.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.AliasNode || n.Alias == nil {
		return n
	}
	target := *n.Alias
	target.Line, target.Column = n.Line, n.Column
	return &target
}

// value decodes n into v, which is addressable.
func (d *decoder) value(n *yaml.Node, field string, v reflect.Value) {
	if d.exhausted(n, field) {
		return
	}
	n = follow(n)
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if err := checkNode(n, v.Type()); err != nil {
		d.fail(n, field, err)
		return
	}
	if n.Kind == yaml.ScalarNode {
		d.origins[field] = originOf(n)
		d.scalar(n, field, v)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, field, v)
	case reflect.Slice:
		d.list(n, field, v)
	case reflect.Map:
		d.texts(n, field, v)
	}
}

// exhausted counts a node. It reports whether decoding has to stop, and adds an error once if
// there are too many nodes.
func (d *decoder) exhausted(n *yaml.Node, field string) bool {
	if d.nodes++; d.nodes <= maxNodes {
		return len(d.errs) >= maxErrors
	}
	if !d.tooMany {
		d.tooMany = true
		d.fail(n, field, faultf("write fewer entries", "the document holds more than %d values, counting aliases", maxNodes))
	}
	return true
}

// checkNode reports a node that cannot become a value of type t.
func checkNode(n *yaml.Node, t reflect.Type) error {
	switch {
	case n.Style&yaml.TaggedStyle != 0:
		return faultf("leave the tag out", "tags such as %s are not allowed", n.Tag)
	case isNull(n) && n.Value == "~":
		return faultf(`write "~" in quotes for the home folder`, "~ by itself means no value in YAML")
	case isNull(n):
		return faultf("remove the key, or give it a value", "has no value")
	case !fits(n, t):
		return wrongType(n, t)
	}
	return nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// fits reports whether the kind of a node suits a type.
func fits(n *yaml.Node, t reflect.Type) bool {
	switch n.Kind {
	case yaml.MappingNode:
		return !isText(t) && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map)
	case yaml.SequenceNode:
		return t.Kind() == reflect.Slice
	case yaml.ScalarNode:
		return scalarFits(n.ShortTag(), t)
	default:
		return false
	}
}

func scalarFits(tag string, t reflect.Type) bool {
	text := tag == "!!str" || tag == "!!timestamp"
	switch {
	case isText(t):
		return text || tag == "!!int" || tag == "!!float"
	case reflect.PointerTo(t).Implements(reflect.TypeFor[shorthand]()):
		return text || tag == "!!bool" && isSwitch(t)
	case t.Kind() == reflect.String:
		return text
	case t.Kind() == reflect.Bool:
		return tag == "!!bool"
	case t.Kind() == reflect.Int:
		return tag == "!!int"
	default:
		return false
	}
}

// isSwitch reports whether true or false may stand for a section.
func isSwitch(t reflect.Type) bool {
	return t == reflect.TypeFor[networkSection]() || t == reflect.TypeFor[busSection]() || t == reflect.TypeFor[reviewName]() || t == reflect.TypeFor[capabilitiesNet]()
}

func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func (d *decoder) scalar(n *yaml.Node, field string, v reflect.Value) {
	if err := setScalar(v, n.ShortTag(), n.Value); err != nil {
		d.fail(n, field, err)
	}
}

// setScalar sets v, which is addressable, to a scalar of a file.
func setScalar(v reflect.Value, tag, value string) (err error) {
	if strings.IndexByte(value, 0) >= 0 {
		return faultf("remove it", "holds a NUL byte")
	}
	switch target := v.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		err = target.UnmarshalText([]byte(value))
	case shorthand:
		err = target.fromScalar(tag, value)
	case *string:
		*target = value
	case *bool:
		*target = isTrue(value)
	case *int:
		if *target, err = strconv.Atoi(value); err != nil {
			err = faultf("write plain digits", "%q is not a number", value)
		}
	}
	return err
}

func (d *decoder) structure(n *yaml.Node, field string, v reflect.Value) {
	keys := fieldsOf(v.Type())
	for _, e := range d.pairs(n, field) {
		index, ok := keys[e.key.Value]
		if !ok {
			d.fail(e.key, joinField(field, shortKey(e.key.Value)), unknownKey(e.key.Value, v.Type()))
			continue
		}
		d.value(e.value, e.field, v.Field(index))
	}
}

func (d *decoder) list(n *yaml.Node, field string, v reflect.Value) {
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		at := indexed(field, i)
		d.origins[at] = originOf(item)
		d.value(item, at, out.Index(i))
	}
	v.Set(out)
}

// texts decodes a mapping of names to texts.
func (d *decoder) texts(n *yaml.Node, field string, v reflect.Value) {
	out := map[string]string{}
	for _, e := range d.pairs(n, field) {
		var text string
		d.value(e.value, e.field, reflect.ValueOf(&text).Elem())
		out[e.key.Value] = text
	}
	v.Set(reflect.ValueOf(out))
}

// A pair is one key of a mapping with its value and its name in errors.
type pair struct {
	key, value *yaml.Node
	field      string
}

// pairs returns the entries of a mapping, and reports keys that are not text or that occur
// twice.
func (d *decoder) pairs(n *yaml.Node, field string) []pair {
	lines := map[string]int{}
	var out []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		d.nodes++
		key := follow(n.Content[i])
		at := joinField(field, key.Value)
		switch first, twice := lines[key.Value]; {
		case key.Kind != yaml.ScalarNode || isNull(key) || strings.IndexByte(key.Value, 0) >= 0:
			d.fail(key, field, faultf("", "a key must be text"))
			continue
		case twice:
			d.fail(key, at, faultf("keep one of them", "the key is there twice, first on line %d", first))
			continue
		}
		lines[key.Value] = key.Line
		d.origins[at] = originOf(key)
		out = append(out, pair{key, n.Content[i+1], at})
	}
	return out
}

// shortKey returns an unknown key for an error message. A text that does not look like a key
// may be a line of another file, perhaps with a password, so only its beginning is shown.
func shortKey(key string) string {
	const shown = 8
	isKey := func(r rune) bool {
		return r == '_' || r == '-' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r)
	}
	runes := []rune(key)
	if len(runes) > 40 || len(runes) > shown && slices.ContainsFunc(runes, func(r rune) bool { return !isKey(r) }) {
		return string(runes[:shown]) + "…"
	}
	return key
}

func joinField(field, key string) string {
	if len(key) > 64 {
		key = key[:64] + "…"
	}
	if field == "" {
		return key
	}
	return field + "." + key
}

// fieldsOf maps the keys of a struct to its fields.
func fieldsOf(t reflect.Type) map[string]int {
	keys := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		if name := keyOf(t.Field(i)); name != "" {
			keys[name] = i
		}
	}
	return keys
}

// keyOf is the key of a struct's field in a file, empty if it has none.
func keyOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}
