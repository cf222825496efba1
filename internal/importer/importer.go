// Package importer turns the settings of other sandboxes into a policy: those of
// sandbox-runtime, of Claude Code and of Codex. Each entry of the policy says in a
// comment where it comes from, and each setting that has no equal is returned, so
// that nobody believes in a rule that is not there.
//
// Where two readings are possible, the stricter one is taken.
package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/policy"
)

// A Source is a program whose settings can be read.
type Source string

// The sources.
const (
	SandboxRuntime Source = "srt"
	ClaudeCode     Source = "claude"
	Codex          Source = "codex"
)

// Sources returns all of them.
func Sources() []string { return []string{string(SandboxRuntime), string(ClaudeCode), string(Codex)} }

// An Unmatched is a setting that the policy does not have, or has as something
// else.
type Unmatched struct {
	// Setting is its name in the file, with its value where that is a rule.
	Setting string `json:"setting"`
	// Reason says why, and what to do about it.
	Reason string `json:"reason"`
}

// A Result is an imported policy.
type Result struct {
	// Policy is the text of a policy file.
	Policy []byte `json:"-"`
	// Unmatched are the settings without an equal, in the order of the file's kind.
	Unmatched []Unmatched `json:"unmatched"`
}

// Detect tells the kind of a file by its name, or else by what is in it.
func Detect(name string, data []byte) (Source, error) {
	if filepath.Ext(name) == ".toml" {
		return Codex, nil
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(data, &keys) == nil {
		switch {
		case keys["permissions"] != nil || keys["sandbox"] != nil:
			return ClaudeCode, nil
		case keys["filesystem"] != nil || keys["network"] != nil:
			return SandboxRuntime, nil
		}
	}
	return "", fmt.Errorf("%s: whose settings these are cannot be told; name it with --from %s", name, strings.Join(Sources(), ", --from "))
}

// Import reads settings. The name is what comments call the file.
func Import(from Source, name string, data []byte) (*Result, error) {
	b := &builder{file: filepath.Base(name), lists: map[string][]entry{}}
	var err error
	switch from {
	case SandboxRuntime:
		err = b.sandboxRuntime(data)
	case ClaudeCode:
		err = b.claudeCode(data)
	case Codex:
		err = b.codex(data)
	default:
		return nil, fmt.Errorf("%q is not known; it is one of %s", from, strings.Join(Sources(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read as settings of %s: %w", name, from, err)
	}
	text, err := b.text(from)
	if err != nil {
		return nil, err
	}
	if _, err := policy.Parse("imported policy", text); err != nil {
		return nil, fmt.Errorf("%s gives a policy that is not valid: %w", name, err)
	}
	return &Result{Policy: text, Unmatched: b.unmatched}, nil
}

// readObject reads a JSON object into a value, and returns what each key has. An object
// that is not there has no keys.
func readObject(data []byte, to any) (keys map[string]json.RawMessage, err error) {
	if data == nil {
		return nil, nil
	}
	if err = json.Unmarshal(data, &keys); err == nil {
		err = json.Unmarshal(data, to)
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		line := 1 + strings.Count(string(data[:min(int(syntax.Offset), len(data))]), "\n")
		return nil, fmt.Errorf("line %d: %w", line, err)
	}
	return keys, err
}

// An entry is a value with the setting it comes from.
type entry struct{ value, from string }

// A builder collects a policy.
type builder struct {
	file      string
	presets   []string
	lists     map[string][]entry // by the name of the list in a policy file
	mode, env entry              // network.mode and env.policy
	set       []entry            // NAME=VALUE
	remarks   []string
	unlimited bool
	unmatched []Unmatched
}

// no records a setting without an equal.
func (b *builder) no(setting, reason string) {
	b.unmatched = append(b.unmatched, Unmatched{setting, reason})
}

// listed reports whether a list has a value.
func (b *builder) listed(list, value string) bool {
	return slices.ContainsFunc(b.lists[list], func(e entry) bool { return e.value == value })
}

// add adds a value to a list, once.
func (b *builder) add(list, value, from string) {
	if !b.listed(list, value) {
		b.lists[list] = append(b.lists[list], entry{value, from})
	}
}

// settle keeps one rule for each path: what takes more away.
func (b *builder) settle() {
	strictest := []string{"paths.hide", "paths.protect", "paths.write", "paths.read"}
	for i, list := range strictest {
		b.lists[list] = slices.DeleteFunc(b.lists[list], func(e entry) bool {
			return slices.ContainsFunc(strictest[:i], func(stricter string) bool { return b.listed(stricter, e.value) })
		})
	}
}

// wrong says why a list of a policy cannot have a value. It is empty if it can.
func wrong(list, value string) string {
	var doc policy.Document
	err := doc.Set(list, value, "")
	if err == nil {
		_, err = doc.Settings()
	}
	var at *policy.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &at): // its place is in a file that nobody has
		return strings.TrimSuffix(at.Message+"; "+at.Fix, "; ")
	}
	return err.Error()
}
