package mcpserver

import (
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// choices are the words that some arguments are limited to.
var choices = map[string][]any{
	"access": {"read", "write", "connect"},
	"action": {"read", "write", "exec", "connect"},
}

// inputSchema is the schema of a tool's arguments. A list that is not given is
// left out and never null: some clients know one type for each argument only.
func inputSchema[In any]() *jsonschema.Schema {
	s, err := jsonschema.For[In](nil)
	if err != nil {
		panic("the arguments of a tool have no schema: " + err.Error()) // of a type in this package
	}
	for name, p := range s.Properties {
		if slices.Contains(p.Types, "null") {
			p.Type, p.Types = p.Types[1-slices.Index(p.Types, "null")], nil
		}
		if words, ok := choices[name]; ok {
			p.Enum = words
		}
	}
	return s
}
