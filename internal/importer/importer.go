// Package importer turns the settings of other sandboxes into a policy: those of
// sandbox-runtime, of Claude Code and of Codex. Each entry of the policy has a comment
// that says where it comes from. Each setting without an equivalent is returned, so
// that nobody relies on a rule that does not exist.
//
// If a setting can be read in two ways, the stricter one is used.
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

// Sources returns the names of all sources.
func Sources() []string { return []string{string(SandboxRuntime), string(ClaudeCode), string(Codex)} }

// An Unmatched is a setting that the policy does not contain, or contains in another
// form.
type Unmatched struct {
	// Setting is the name of the setting in the file, and its value if it is a rule.
	Setting string `json:"setting"`
	// Reason says why it has no equivalent, and what to do about it.
	Reason string `json:"reason"`
}

// A Result is an imported policy.
type Result struct {
	// Policy is the text of a policy file.
	Policy []byte `json:"-"`
	// Unmatched are the settings without an equivalent, in the order in which they were
	// read.
	Unmatched []Unmatched `json:"unmatched"`
}

// Detect returns the program that a settings file belongs to, by its name, or, if that
// is not enough, by its content.
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

// Import reads settings. Comments in the policy call the file name.
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

// readObject reads a JSON object into a value, and returns its keys with their values.
// A missing object has no keys.
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

// An entry is a value and the setting that it comes from.
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

// no records a setting without an equivalent.
func (b *builder) no(setting, reason string) {
	b.unmatched = append(b.unmatched, Unmatched{setting, reason})
}

// listed reports whether a list contains a value.
func (b *builder) listed(list, value string) bool {
	return slices.ContainsFunc(b.lists[list], func(e entry) bool { return e.value == value })
}

// add adds a value to a list, unless the list already contains it.
func (b *builder) add(list, value, from string) {
	if !b.listed(list, value) {
		b.lists[list] = append(b.lists[list], entry{value, from})
	}
}

// settle keeps one rule for each path: the strictest.
func (b *builder) settle() {
	strictest := []string{"paths.hide", "paths.protect", "paths.write", "paths.read"}
	for i, list := range strictest {
		b.lists[list] = slices.DeleteFunc(b.lists[list], func(e entry) bool {
			return slices.ContainsFunc(strictest[:i], func(stricter string) bool { return b.listed(stricter, e.value) })
		})
	}
}

// wrong returns why a list of a policy cannot contain a value, or "" if it can.
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
	case errors.As(err, &at): // leave out the line and column: the text was made here, and the user has no such file
		return strings.TrimSuffix(at.Message+"; "+at.Fix, "; ")
	}
	return err.Error()
}
