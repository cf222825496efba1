package policy

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"
)

// This file makes schema.json, and the table of keys in docs/reference/policy-keys.md,
// from the types of a document: go test -run TestSchemaIsFresh -update. The product
// itself does not link a schema library.

// The embedded schema and the table of keys in the documentation are those that the
// types give now.
func TestSchemaIsFresh(t *testing.T) {
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	const reference = "../docs/reference/policy-keys.md"
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	old := string(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")))
	filled, err := fillReference(old)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := errors.Join(os.WriteFile("schema.json", want, 0o644), os.WriteFile(reference, []byte(filled), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := bytes.ReplaceAll(Schema(), []byte("\r\n"), []byte("\n")); !bytes.Equal(got, want) {
		t.Error("schema.json is stale; run go generate ./policy")
	}
	if old != filled {
		t.Error("docs/reference/policy-keys.md is stale; run go generate ./policy")
	}
}

func resolved(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// instance reads YAML the way an editor hands it to a schema.
func instance(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(asJSON, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// F4, F6, L1: the schema accepts what Parse accepts, short forms included.
func TestSchemaAcceptsGoodFiles(t *testing.T) {
	schema := resolved(t)
	count := 0
	for _, pattern := range []string{"testdata/good/*", "presets/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			v := instance(t, text)
			if v == nil {
				continue // only comments
			}
			count++
			if err := schema.Validate(v); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d files were looked at", count)
	}
}

// The schema and Parse refuse the same mistakes.
func TestSchemaRefusesMistakes(t *testing.T) {
	schema := resolved(t)
	for _, text := range []string{
		"paths: {wirte: [/a]}", "paths: {write: 5}", "paths: {write: [5]}", "paths: {write: [{optional: true}]}", `paths: {write: [""]}`,
		"version: 2", "reads: all", "network: on", "network: {mode: maybe}", "network: {allow: [1]}", "env: {set: {A: true}}", "presets: [nope]",
		"limits: {time: 10}", "limits: {time: soon}", "limits: {memory: lots}", "limits: {processes: 0}", "tests: [{want: allow}]",
		"tests: [{read: /a, want: maybe}]", "tests: [{read: /a, write: /a, want: deny}]", "enabled: null", "hello: 1", "backend: 5", "text",
	} {
		if err := schema.Validate(instance(t, []byte(text))); err == nil {
			t.Errorf("the schema accepts %s", text)
		}
		if _, err := Parse("f", []byte(text)); err == nil {
			t.Errorf("Parse accepts %s", text)
		}
	}
}

// generate returns the schema of document as indented JSON.
func generate() ([]byte, error) {
	s, err := documentSchema()
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

// documentSchema builds the schema: the Go types give the keys, and the types
// that have a short form in files are described by hand.
func documentSchema() (*jsonschema.Schema, error) {
	types := scalarSchemas()
	if err := addShorthands(types); err != nil {
		return nil, err
	}
	s, err := jsonschema.For[document](&jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		return nil, err
	}
	dropNull(s)
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "cloche policy"
	s.Description = "What a command may read, write, connect to and use. True or false alone switches the sandbox on or off."
	s.Type, s.Types = "", []string{"object", "boolean"}
	s.Properties["version"].Const = jsonschema.Ptr(any(version))
	s.Properties["presets"].Items.Enum = anys(Presets())
	s.Properties["tests"].Items = testSchema(s.Properties["tests"].Items)
	return s, nil
}

// scalarSchemas describes the types that are one scalar in a file.
func scalarSchemas() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[Reads]():         enumSchema[Reads](),
		reflect.TypeFor[Tmp]():           enumSchema[Tmp](),
		reflect.TypeFor[NetworkMode]():   enumSchema[NetworkMode](),
		reflect.TypeFor[EnvMode]():       enumSchema[EnvMode](),
		reflect.TypeFor[Strength]():      enumSchema[Strength](),
		reflect.TypeFor[Recording]():     enumSchema[Recording](),
		reflect.TypeFor[Fallback]():      enumSchema[Fallback](),
		reflect.TypeFor[Link]():          enumSchema[Link](),
		reflect.TypeFor[protocol]():      {Type: "string", Enum: []any{"tcp", "udp", "icmp", HTTPS}},
		reflect.TypeFor[portRange]():     {Types: []string{"integer", "string"}, Pattern: `^[0-9]+(-[0-9]+)?$`, Minimum: jsonschema.Ptr(1.0), Maximum: jsonschema.Ptr(65535.0)},
		reflect.TypeFor[publishedPort](): portSchema(),
		reflect.TypeFor[forwardedPort](): portSchema(),
		reflect.TypeFor[duration]():      {Type: "string", Pattern: `^(unlimited|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$`},
		reflect.TypeFor[size]():          numberSchema(`^(unlimited|[0-9]+(\.[0-9]+)? *([kKmMgGtT]([iI]?[bB])?|[bB])?)$`),
		reflect.TypeFor[count]():         numberSchema(`^(unlimited|[0-9]+)$`),
	}
}

func portSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"integer", "string"}, Pattern: `^([0-9.]+:|\[[0-9a-fA-F:.]+\]:)?[0-9]+(:[0-9]+)?(/(tcp|udp))?$`, Minimum: jsonschema.Ptr(1.0), Maximum: jsonschema.Ptr(65535.0)}
}

// numberSchema is a positive number, or a text that matches the pattern.
func numberSchema(pattern string) *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"integer", "string"}, Pattern: pattern, Minimum: jsonschema.Ptr(1.0)}
}

// enumSchema lists the names of an enum, which are those of its values from
// zero up to the first one without a name.
func enumSchema[T interface {
	~int
	encoding.TextMarshaler
}]() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for v := T(0); ; v++ {
		name, err := v.MarshalText()
		if err != nil {
			return s
		}
		s.Enum = append(s.Enum, string(name))
	}
}

// addShorthands describes the types that are a mapping or one scalar.
func addShorthands(types map[reflect.Type]*jsonschema.Schema) error {
	text := func() *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", MinLength: jsonschema.Ptr(1)}
	}
	mode := enumSchema[NetworkMode]()
	// Sections come after the entries that they hold.
	if err := addShorthand(types, reflect.TypeFor[hostEntry](), text()); err != nil {
		return err
	}
	for t, short := range map[reflect.Type][]*jsonschema.Schema{
		reflect.TypeFor[PathRule]():       {text()},
		reflect.TypeFor[Exemption]():      {text()},
		reflect.TypeFor[Socket]():         {text()},
		reflect.TypeFor[Secret]():         {text()},
		reflect.TypeFor[Bind]():           {text()},
		reflect.TypeFor[backendSection](): {text()},
		reflect.TypeFor[busSection]():     {{Type: "boolean"}},
		reflect.TypeFor[reviewName]():     {{Type: "boolean"}},
		reflect.TypeFor[networkSection](): {mode, {Type: "boolean"}},
	} {
		if err := addShorthand(types, t, short...); err != nil {
			return err
		}
	}
	return nil
}

// addShorthand describes one type that is a mapping or has a short form.
func addShorthand(types map[reflect.Type]*jsonschema.Schema, t reflect.Type, short ...*jsonschema.Schema) error {
	inner := scalarSchemas()
	if host, ok := types[reflect.TypeFor[hostEntry]()]; ok {
		inner[reflect.TypeFor[hostEntry]()] = host
	}
	long, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: inner})
	if err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	types[t] = &jsonschema.Schema{AnyOf: append(short, long)}
	return nil
}

// testSchema is a mapping of one action and what is wanted of it.
func testSchema(s *jsonschema.Schema) *jsonschema.Schema {
	s.Properties["want"].Enum = []any{"allow", "deny"}
	s.MinProperties, s.MaxProperties = jsonschema.Ptr(2), jsonschema.Ptr(2)
	return s
}

// dropNull takes null out of a schema and all below it: the Go types allow it
// for what is not set, and files do not. The library adds an empty type beside
// it where a type was described by hand without one.
func dropNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	s.Types = slices.DeleteFunc(s.Types, func(t string) bool { return t == "null" || t == "" })
	switch len(s.Types) {
	case 0:
		s.Types = nil
	case 1:
		s.Type, s.Types = s.Types[0], nil
	}
	for _, p := range s.Properties {
		dropNull(p)
	}
	for _, a := range s.AnyOf {
		dropNull(a)
	}
	dropNull(s.Items)
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not == nil {
		dropNull(s.AdditionalProperties)
	}
}

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, t := range texts {
		out[i] = t
	}
	return out
}

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
	for _, name := range schemaKeys(s) {
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

// schemaKeys are the keys in the order of the type, or by name.
func schemaKeys(s *jsonschema.Schema) []string {
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
