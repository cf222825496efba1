package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/cloche-dev/cloche/policy"
)

// The embedded schema is the one that the types give now.
func TestSchemaIsFresh(t *testing.T) {
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.ReplaceAll(policy.Schema(), []byte("\r\n"), []byte("\n")); !bytes.Equal(got, want) {
		t.Error("schema.json is stale; run go generate ./policy")
	}
}

// The table of keys in the documentation is the one that the types give now.
func TestReferenceIsFresh(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/policy-keys.md")
	if err != nil {
		t.Fatal(err)
	}
	old := string(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")))
	if want, err := fillReference(old); err != nil || old != want {
		t.Errorf("docs/reference/policy-keys.md is stale; run go generate ./policy (%v)", err)
	}
}

func resolved(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(policy.Schema(), &s); err != nil {
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
	for _, pattern := range []string{"../../testdata/good/*", "../../presets/*.yaml"} {
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
		if _, err := policy.Parse("f", []byte(text)); err == nil {
			t.Errorf("Parse accepts %s", text)
		}
	}
}
