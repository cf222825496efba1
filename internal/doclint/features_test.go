package doclint

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const featuresPage = "docs/features.md"

var updateFeatures = flag.Bool("update", false, "fill the last column of "+featuresPage)

var (
	featureID  = regexp.MustCompile(`\b[FCALWN][1-9][0-9]?\b`)
	featureRow = regexp.MustCompile(`^\| ([FCALWN][1-9][0-9]?) \| (.+) \| ?(.*) ?\|$`)
	quoted     = regexp.MustCompile("`([^`]+)`")
)

// planned in the last column marks a row that is not delivered: it needs no test.
const planned = "planned"

// maxProofs is how many tests the page names for one row.
const maxProofs = 4

// Every row of the page that is delivered has a test that names it, and the
// tests that the page names do so.
func TestFeatures(t *testing.T) {
	proofs := featureProofs(t)
	text, err := os.ReadFile(featuresPage)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	rows := map[string]bool{}
	for i, line := range lines {
		m := featureRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		id, cell := m[1], strings.TrimSpace(m[3])
		if rows[id] {
			t.Errorf("%s has two rows %s", featuresPage, id)
		}
		rows[id] = true
		if *updateFeatures {
			cell = namedProofs(cell, proofs[id])
			lines[i] = fmt.Sprintf("| %s | %s | %s |", id, m[2], cell)
		}
		checkFeature(t, id, cell, proofs[id])
	}
	for id := range proofs {
		if !rows[id] {
			t.Errorf("%s names %s, which is no row of %s", proofs[id][0], id, featuresPage)
		}
	}
	checkGroups(t, rows)
	if *updateFeatures && !t.Failed() {
		if err := os.WriteFile(featuresPage, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func checkFeature(t *testing.T, id, cell string, proofs []string) {
	t.Helper()
	if cell == planned {
		return
	}
	t.Logf("%-4s %s", id, strings.Join(proofs, " "))
	if len(proofs) == 0 {
		t.Errorf("row %s has no test: name it in a comment of the test that proves it (// %s)", id, id)
		return
	}
	named := quoted.FindAllStringSubmatch(cell, -1)
	if len(named) == 0 {
		t.Errorf("row %s names no test; run: go test ./internal/doclint -run TestFeatures -update", id)
	}
	for _, m := range named {
		if !slices.Contains(proofs, m[1]) {
			t.Errorf("row %s names %s, which does not name %s; run: go test ./internal/doclint -run TestFeatures -update", id, m[1], id)
		}
	}
}

// checkGroups finds rows that were dropped: the ids of a group have no gaps.
func checkGroups(t *testing.T, rows map[string]bool) {
	t.Helper()
	for group, last := range map[string]int{"F": 14, "C": 6, "A": 11, "L": 7, "W": 8, "N": 14} {
		for i := range last {
			if id := fmt.Sprintf("%s%d", group, i+1); !rows[id] {
				t.Errorf("%s has no row %s", featuresPage, id)
			}
		}
	}
}

// namedProofs is the last column: what it names already and still holds, filled
// up with tests of other places.
func namedProofs(cell string, proofs []string) string {
	if cell == planned {
		return cell
	}
	var names []string
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		if slices.Contains(proofs, m[1]) {
			names = append(names, m[1])
		}
	}
	used := map[string]bool{}
	for _, name := range names {
		used[filepath.Dir(name)] = true
	}
	for _, name := range proofs {
		if dir := filepath.Dir(name); len(names) < maxProofs && !used[dir] {
			names, used[dir] = append(names, name), true
		}
	}
	for i, name := range names {
		names[i] = "`" + name + "`"
	}
	return strings.Join(names, " ")
}

// featureProofs returns for each id the tests and scripts that name it, as
// folder/Name or as the path of a file.
func featureProofs(t *testing.T) map[string][]string {
	t.Helper()
	proofs := map[string][]string{}
	add := func(comment, place string) {
		for _, id := range featureID.FindAllString(comment, -1) {
			if !slices.Contains(proofs[id], place) {
				proofs[id] = append(proofs[id], place)
			}
		}
	}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "vendor" || d.Name() == ".git"):
			return fs.SkipDir
		case strings.HasSuffix(p, "_test.go"), strings.HasPrefix(p, "backend/backendtest/") && strings.HasSuffix(p, ".go"):
			return goProofs(p, add)
		case strings.HasSuffix(p, ".txtar"):
			return scriptProofs(p, add)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return proofs
}

// goProofs finds the comments of a file with tests. One that is in or above a
// test counts for that, any other for the file.
func goProofs(p string, add func(comment, place string)) error {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, p, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, group := range f.Comments {
		place := filepath.ToSlash(p)
		if name := testAround(f, group); name != "" {
			place = filepath.ToSlash(filepath.Join(filepath.Dir(p), name))
		}
		add(group.Text(), place)
	}
	return nil
}

// testAround returns the test that a comment is in or above.
func testAround(f *ast.File, c *ast.CommentGroup) string {
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Doc != c && (c.Pos() < fn.Pos() || c.End() > fn.End()) {
			continue
		}
		for _, prefix := range []string{"Test", "Fuzz", "Example", "Benchmark"} {
			if strings.HasPrefix(fn.Name.Name, prefix) {
				return fn.Name.Name
			}
		}
	}
	return ""
}

// scriptProofs finds the comments of a script.
func scriptProofs(p string, add func(comment, place string)) error {
	text, err := os.ReadFile(p)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "-- ") {
			break // the files that come with it
		}
		if strings.HasPrefix(line, "#") {
			add(line, filepath.ToSlash(p))
		}
	}
	return nil
}
