package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cloche-dev/cloche/policy"
)

// generate returns the schema of policy.Document as indented JSON.
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
	s, err := jsonschema.For[policy.Document](&jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		return nil, err
	}
	dropNull(s)
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "cloche policy"
	s.Description = "What a command may read, write, connect to and use. True or false alone switches the sandbox on or off."
	s.Type, s.Types = "", []string{"object", "boolean"}
	s.Properties["version"].Const = jsonschema.Ptr(any(policy.Version))
	s.Properties["presets"].Items.Enum = anys(policy.Presets())
	s.Properties["tests"].Items = testSchema(s.Properties["tests"].Items)
	return s, nil
}

// scalarSchemas describes the types that are one scalar in a file.
func scalarSchemas() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[policy.Reads]():       enumSchema[policy.Reads](),
		reflect.TypeFor[policy.Tmp]():         enumSchema[policy.Tmp](),
		reflect.TypeFor[policy.NetworkMode](): enumSchema[policy.NetworkMode](),
		reflect.TypeFor[policy.EnvMode]():     enumSchema[policy.EnvMode](),
		reflect.TypeFor[policy.Strength]():    enumSchema[policy.Strength](),
		reflect.TypeFor[policy.Recording]():   enumSchema[policy.Recording](),
		reflect.TypeFor[policy.Fallback]():    enumSchema[policy.Fallback](),
		reflect.TypeFor[policy.Link]():        enumSchema[policy.Link](),
		reflect.TypeFor[policy.Protocol]():    {Type: "string", Enum: []any{"tcp", "udp", "icmp"}},
		reflect.TypeFor[policy.PortRange]():   {Types: []string{"integer", "string"}, Pattern: `^[0-9]+(-[0-9]+)?$`, Minimum: jsonschema.Ptr(1.0), Maximum: jsonschema.Ptr(65535.0)},
		reflect.TypeFor[policy.PortEntry]():   {Types: []string{"integer", "string"}, Pattern: `^([0-9.]+:|\[[0-9a-fA-F:.]+\]:)?[0-9]+(:[0-9]+)?(/(tcp|udp))?$`, Minimum: jsonschema.Ptr(1.0), Maximum: jsonschema.Ptr(65535.0)},
		reflect.TypeFor[policy.Duration]():    {Type: "string", Pattern: `^(unlimited|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$`},
		reflect.TypeFor[policy.Size]():        numberSchema(`^(unlimited|[0-9]+(\.[0-9]+)? *([kKmMgGtT]([iI]?[bB])?|[bB])?)$`),
		reflect.TypeFor[policy.Count]():       numberSchema(`^(unlimited|[0-9]+)$`),
	}
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
	mode := enumSchema[policy.NetworkMode]()
	// Sections come after the entries that they hold.
	if err := addShorthand(types, reflect.TypeFor[policy.HostEntry](), text()); err != nil {
		return err
	}
	for t, short := range map[reflect.Type][]*jsonschema.Schema{
		reflect.TypeFor[policy.PathEntry]():      {text()},
		reflect.TypeFor[policy.ExemptEntry]():    {text()},
		reflect.TypeFor[policy.SocketEntry]():    {text()},
		reflect.TypeFor[policy.BindEntry]():      {text()},
		reflect.TypeFor[policy.BackendSection](): {text()},
		reflect.TypeFor[policy.BusSection]():     {{Type: "boolean"}},
		reflect.TypeFor[policy.NetworkSection](): {mode, {Type: "boolean"}},
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
	if host, ok := types[reflect.TypeFor[policy.HostEntry]()]; ok {
		inner[reflect.TypeFor[policy.HostEntry]()] = host
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
