package doclint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// unlikeUs are forms of words that cloche's errors do without: they say what is the
// case, and not that something failed.
var unlikeUs = regexp.MustCompile(`(?i)\b(failed to|unable to|error while|oops|please|sorry|invalid argument)\b|!$|\.$|\n$|^\s|\s$`)

// Errors speak with one voice: no period at the end, no line break, no excuse.
func TestErrorVoice(t *testing.T) {
	count := 0
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "vendor") {
			return fs.SkipDir
		}
		if filepath.Ext(p) != ".go" || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		for text, at := range errorTexts(t, p) {
			count++
			if bad := unlikeUs.FindString(text); bad != "" && !strings.HasSuffix(text, "…") {
				t.Errorf("%s: %q has %q", at, text, bad)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count < 300 {
		t.Errorf("only %d texts of errors were found", count)
	}
}

// errorTexts are the texts of errors that a file makes, with their places.
func errorTexts(t *testing.T, file string) map[string]token.Position {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]token.Position{}
	ast.Inspect(tree, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !makesError(call.Fun) {
			return true
		}
		for _, arg := range call.Args {
			if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && text != "" {
					texts[text] = fset.Position(lit.Pos())
				}
			}
		}
		return true
	})
	return texts
}

// makesError reports whether a function makes errors of texts.
func makesError(fun ast.Expr) bool {
	switch f := fun.(type) {
	case *ast.Ident:
		return f.Name == "faultf"
	case *ast.SelectorExpr:
		x, ok := f.X.(*ast.Ident)
		return ok && (x.Name == "errors" && f.Sel.Name == "New" || x.Name == "fmt" && f.Sel.Name == "Errorf") || f.Sel.Name == "failf"
	}
	return false
}
