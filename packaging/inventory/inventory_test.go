package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

func info(path string, deps ...*debug.Module) *buildinfo.BuildInfo {
	return &buildinfo.BuildInfo{GoVersion: "go1.26.0", Path: path, Main: debug.Module{Path: "example.com/m"}, Deps: deps}
}

// A program that was built for two platforms is one, with the modules of both; the
// module that was linked counts, not the one it replaces.
func TestInventory(t *testing.T) {
	a := &debug.Module{Path: "example.com/a", Version: "v1.0.0", Sum: "h1:a"}
	fork := &debug.Module{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v2.0.0", Sum: "h1:f"}}
	inv := &inventory{toolkit: "go1.26.0"}
	inv.add(info("example.com/m/cmd/one", a))
	inv.add(info("example.com/m/cmd/one", a, fork))
	inv.add(info("example.com/m/cmd/two", a))
	if len(inv.programs) != 2 || len(inv.modules) != 2 || len(inv.programs[0].modules) != 2 || len(inv.programs[1].modules) != 1 {
		t.Fatalf("%+v", inv)
	}
	inv.modules[0].licenses = []licenseFile{{name: "LICENSE", text: "x", ids: []string{"MIT", "Apache-2.0"}}, {name: "NOTICE", text: "y"}}
	d := inv.document("v1.2.3", time.Unix(0, 0).UTC())
	var names []string
	for _, c := range d.Components {
		names = append(names, c.Name)
	}
	if want := []string{"one", "two", "std", "example.com/a", "example.com/fork"}; !reflect.DeepEqual(names, want) {
		t.Errorf("components %v, want %v", names, want)
	}
	if got := d.Components[3].Licenses; len(got) != 2 || got[0].License.ID != "MIT" {
		t.Errorf("licences %v", got)
	}
	checkRefs(t, d)
	if text := inv.licenseText(); !strings.Contains(text, "example.com/a v1.0.0: NOTICE\n\ny\n") {
		t.Error(text)
	}
}

// checkRefs fails for a reference to nothing, which scanners refuse.
func checkRefs(t *testing.T, d bom) {
	t.Helper()
	refs := []string{d.Metadata.Component.Ref}
	for _, c := range d.Components {
		if slices.Contains(refs, c.Ref) {
			t.Errorf("two components are %s", c.Ref)
		}
		refs = append(refs, c.Ref)
	}
	for _, dep := range d.Dependencies {
		for _, ref := range append(dep.DependsOn, dep.Ref) {
			if !slices.Contains(refs, ref) {
				t.Errorf("%s is nothing", ref)
			}
		}
	}
}

// The same programs give the same bytes, with no time but the one that is given.
func TestReproducible(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var texts [2]string
	for i := range texts {
		inv, err := look([]string{self})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(inv.document("v1.2.3", time.Unix(1, 0).UTC()))
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	if texts[0] != texts[1] || !strings.Contains(texts[0], "1970-01-01T00:00:01Z") {
		t.Errorf("%s\n%s", texts[0], texts[1])
	}
}

// A module without a known licence stops the release.
func TestReadLicenses(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		ids   []string
		bad   bool
	}{
		{"none", map[string]string{"README": "MIT"}, nil, true},
		{"unknown", map[string]string{"LICENSE": "ask me"}, nil, true},
		{"mit", map[string]string{"LICENSE.md": "Permission is hereby granted,\nfree of charge, to anyone", "NOTICE": "by us"}, []string{"MIT"}, false},
		{"bsd", map[string]string{"COPYING": "Redistribution and use in source and binary forms … Neither the name"}, []string{"BSD-3-Clause"}, false},
		{"bsd2", map[string]string{"LICENCE": "Redistribution and use in source and binary forms"}, []string{"BSD-2-Clause"}, false},
		{"both", map[string]string{"license-1": "Apache License, Version 2.0. Permission is hereby granted, free of charge"}, []string{"Apache-2.0", "MIT"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range test.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			found, err := readLicenses(dir)
			if (err != nil) != test.bad {
				t.Fatalf("%v", err)
			}
			var ids []string
			for _, l := range found {
				ids = append(ids, l.ids...)
			}
			if !test.bad && !slices.Equal(ids, test.ids) {
				t.Errorf("%v, want %v", ids, test.ids)
			}
		})
	}
}

// Without a time, or with what is no program, there is an error and no document.
func TestErrors(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if err := run("v1", out, out, []string{out}); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Error(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	if err := run("v1", out, out, []string{"main.go"}); err == nil || !strings.Contains(err.Error(), "main.go") {
		t.Error(err)
	}
	if err := run("", out, out, []string{out}); err == nil {
		t.Error("no version was taken")
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a document was written")
	}
}
