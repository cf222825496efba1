package main

import (
	"os"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/policy"
)

const document = "../../../docs/reference/protected-files.md"

func readDocument(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// The tables are those that the presets give now.
func TestTablesAreFresh(t *testing.T) {
	text := readDocument(t)
	want, err := fill(text)
	if err != nil {
		t.Fatal(err)
	}
	if text != want {
		t.Error("docs/reference/protected-files.md is stale; run go generate ./policy")
	}
}

// L6 F14: every line of the lists is documented.
func TestEveryLineIsDocumented(t *testing.T) {
	text := readDocument(t)
	lines := 0
	for _, name := range []string{"secrets", "dotenv", "sinks", "ci-files"} {
		doc, err := policy.FromPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, e := range doc.Paths {
			paths = append(paths, e.Path)
		}
		for _, e := range doc.Exempt {
			paths = append(paths, e.Folder)
		}
		for _, p := range paths {
			lines++
			if !strings.Contains(text, "`"+strings.TrimPrefix(p, "**/")+"`") {
				t.Errorf("%s of the preset %s is not in docs/reference/protected-files.md", p, name)
			}
		}
	}
	if lines < 500 {
		t.Errorf("only %d lines were looked at", lines)
	}
}

func TestFill(t *testing.T) {
	text := "a\n<!-- preset dotenv hide -->\nold\n<!-- end -->\nb\n"
	got, err := fill(text)
	if err != nil || !strings.HasPrefix(got, "a\n<!-- preset dotenv hide -->\n\n| what | why |\n| --- | --- |\n| `.env` `.env.ci`") ||
		!strings.HasSuffix(got, "|\n\n<!-- end -->\nb\n") || strings.Contains(got, "old") {
		t.Errorf("got %v, %s", err, got)
	}
	if again, err := fill(got); err != nil || again != got {
		t.Errorf("filling twice gives something else: %v", err)
	}
	for _, wrong := range []string{"<!-- preset nope hide -->\n<!-- end -->", "<!-- preset sinks nope -->\n<!-- end -->"} {
		if _, err := fill(wrong); err == nil {
			t.Errorf("%q is filled", wrong)
		}
	}
}

func TestGroups(t *testing.T) {
	groups, err := groupsOf("sinks", "protect")
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) < 10 || !strings.HasPrefix(groups[0].comment, "Shells: read when one starts") || len(groups[0].entries) < 20 {
		t.Errorf("got %d groups, the first %+v", len(groups), groups[0])
	}
	got := rows([]entry{{"**/a", "x"}, {"~/b", "y"}, {"**/c", "x"}})
	if len(got) != 2 || got[0] != (entry{"`a` `c`", "x"}) || got[1] != (entry{"`~/b`", "y"}) {
		t.Errorf("got %+v", got)
	}
}
