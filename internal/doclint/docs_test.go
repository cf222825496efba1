package doclint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const proofsPage = "docs/reference/proofs.md"

// Every claim of the threat model names a test that exists.
func TestThreatModelNamesTests(t *testing.T) {
	text, err := os.ReadFile(proofsPage)
	if err != nil {
		t.Fatal(err)
	}
	source := goSource(t)
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || !strings.Contains(cells[2], "`") {
			continue
		}
		rows++
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
			name := m[1]
			if !strings.Contains(source, "func "+name+"(") && !strings.Contains(source, `"`+name+`"`) {
				t.Errorf("%q is proven by %q, and there is no such test", strings.TrimSpace(cells[1]), name)
			}
		}
	}
	if rows < 300 {
		t.Errorf("only %d claims were found", rows)
	}
}

// Every group of proofs belongs to a claim of the threat model.
func TestThreatModelLinksProofs(t *testing.T) {
	linked := links(t, "docs/threat-model.md")
	for _, heading := range anchors(t, proofsPage) {
		if heading != "proofs" && !slices.Contains(linked, "reference/proofs.md#"+heading) {
			t.Errorf("docs/threat-model.md has no claim for %s#%s", proofsPage, heading)
		}
	}
}

// goSource is all Go code that holds tests.
func goSource(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "vendor" || d.Name() == ".git") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(p, "_test.go") && !strings.HasPrefix(p, "backend/backendtest/") || !strings.HasSuffix(p, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
