package policy

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON schema of policy files. It is made by go
// generate from the types of a document.
func Schema() []byte { return slices.Clone(schema) }
