package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCurrent fails where the files in the repository are not what the tree of
// commands makes: run go generate ./internal/cli.
func TestCurrent(t *testing.T) {
	scripts, err := completionScripts()
	if err != nil {
		t.Fatal(err)
	}
	compareFolder(t, filepath.Join("..", "..", "..", "docs", "man"), manualPages())
	compareFolder(t, filepath.Join("..", "..", "..", "completions"), scripts)
}

func compareFolder(t *testing.T, dir string, want map[string][]byte) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
		if _, ok := want[e.Name()]; !ok {
			t.Errorf("%s: no command makes it; remove it", filepath.Join(dir, e.Name()))
		}
	}
	for name, data := range want {
		if !slices.Contains(have, name) {
			t.Errorf("%s is missing; run go generate ./internal/cli", filepath.Join(dir, name))
			continue
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytes.ReplaceAll(got, []byte("\r\n"), []byte("\n")), data) {
			t.Errorf("%s is not current; run go generate ./internal/cli", filepath.Join(dir, name))
		}
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"a-b":      `a\-b`,
		`c:\d`:     `c:\ed`,
		".SH evil": `\&.SH evil`,
		"x\n'y":    "x\n\\&'y",
	} {
		if got := text(in); got != want {
			t.Errorf("text(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPageHasItsParts(t *testing.T) {
	page := string(manualPages()["cloche-run.1"])
	for _, want := range []string{".TH \"CLOCHE\\-RUN\" 1", ".SH SYNOPSIS", "\\-\\-report\\-fd N", ".SS \"Network\"", ".SH EXAMPLES", ".BR cloche (1)"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of run lacks %q", want)
		}
	}
}
