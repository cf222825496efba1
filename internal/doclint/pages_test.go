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

// pages are the files of the documentation.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	err := filepath.WalkDir("docs", func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(p) == ".md" {
			found = append(found, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var (
	linkForm    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingForm = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	codeBlock   = regexp.MustCompile("(?s)```.*?```")
)

// links are the targets of a page's links that lead to files.
func links(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range linkForm.FindAllStringSubmatch(codeBlock.ReplaceAllString(string(text), ""), -1) {
		if !strings.Contains(m[1], "://") && !strings.HasPrefix(m[1], "mailto:") {
			found = append(found, m[1])
		}
	}
	return found
}

// anchors are the places of a page that a link can name, as GitHub makes them.
func anchors(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range headingForm.FindAllStringSubmatch(codeBlock.ReplaceAllString(string(text), ""), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r > 0x7f && r != '…' && r != '“' && r != '”':
				return r
			}
			return -1
		}, strings.ToLower(m[1]))
		found = append(found, name)
	}
	return found
}

// Every link of the documentation leads somewhere.
func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, link := range links(t, page) {
			file, anchor, _ := strings.Cut(link, "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), filepath.FromSlash(file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, link)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(t, target), anchor) {
				t.Errorf("%s: there is no heading for the link %s", page, link)
			}
		}
	}
}

// Every page is in the index.
func TestIndexIsComplete(t *testing.T) {
	var listed []string
	for _, link := range links(t, "docs/README.md") {
		listed = append(listed, filepath.Join("docs", filepath.FromSlash(link)))
	}
	for _, page := range pages(t) {
		if page != filepath.FromSlash("docs/README.md") && !slices.Contains(listed, page) {
			t.Errorf("%s is not in docs/README.md", page)
		}
	}
}

// The page of packages has a row for every package but the examples.
func TestPackagesAreListed(t *testing.T) {
	text, err := os.ReadFile("docs/reference/packages.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range allowedImports {
		folder, last := filepath.Split(name)
		whole, short := "`"+name+"`", "`"+last+"`"
		listed := strings.Contains(string(text), whole) || folder == "internal/backends/" && strings.Contains(string(text), short)
		if name != "" && !listed && !strings.HasPrefix(name, "examples") {
			t.Errorf("docs/reference/packages.md does not say what %s is for", name)
		}
	}
}

// The steps of the architecture are functions that exist, in their packages.
func TestArchitectureSteps(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := regexp.MustCompile("(?m)^\\| [0-9]+ \\| `([a-z/]+)(?:\\.([A-Z][A-Za-z]*))?\\.([A-Za-z]+)`").FindAllStringSubmatch(string(text), -1)
	for _, m := range steps {
		receiver := ""
		if m[2] != "" {
			receiver = `\([a-z]* ?\*?` + m[2] + `\) `
		}
		declared := regexp.MustCompile("(?m)^func " + receiver + m[3] + `\(`)
		folder := strings.TrimPrefix(m[1], "cloche")
		files, err := filepath.Glob(filepath.Join(".", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(file string) bool {
			source, err := os.ReadFile(file)
			return err == nil && !strings.HasSuffix(file, "_test.go") && declared.Match(source)
		}) {
			t.Errorf("docs/architecture.md: there is no %s.%s in %q", m[2], m[3], m[1])
		}
	}
	if len(steps) < 12 {
		t.Errorf("only %d steps were found", len(steps))
	}
}
