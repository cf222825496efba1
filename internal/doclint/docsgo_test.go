package doclint

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// docGiven are the variables that the Go code of pages takes as given.
const docGiven = "ctx context.Context, p policy.Policy, mine grant.Approver, dataDir, dir, work, socket string, cmd *exec.Cmd"

// docImports are what that code may use.
var docImports = map[string]string{
	"context": "context", "exec": "os/exec", "fmt": "fmt", "os": "os",
	"cloche": modulePath, "policy": modulePath + "/policy", "grant": modulePath + "/grant", "plan": modulePath + "/plan",
	"backend": modulePath + "/backend", "audit": modulePath + "/audit", "approval": modulePath + "/approval",
}

// The Go code of every page compiles against the module as it is.
func TestDocGo(t *testing.T) {
	tool := goTool(t)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// The compiler gets files of a folder that does not exist.
	folder, temp := filepath.Join(here, "internal", "docgo"), t.TempDir()
	overlay := map[string]string{}
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range goBlock.FindAllStringSubmatch(string(text), -1) {
			name := fmt.Sprintf("block%d.go", len(overlay))
			file := filepath.Join(temp, name)
			if err := os.WriteFile(file, []byte(docProgram(t, page, len(overlay), m[1])), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay[filepath.Join(folder, name)] = file
		}
	}
	if len(overlay) < 4 {
		t.Fatalf("only %d blocks of Go were found", len(overlay))
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err == nil {
		err = os.WriteFile(filepath.Join(temp, "overlay.json"), list, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command(tool, "build", "-overlay", filepath.Join(temp, "overlay.json"), "./internal/docgo")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// docProgram is a file of Go with one block in a function. A line of dots stands for
// code that is left out.
func docProgram(t *testing.T, page string, number int, block string) string {
	t.Helper()
	body := strings.ReplaceAll("\n"+block, "\n…\n", "\n")
	var b strings.Builder
	b.WriteString("package docgo\n\nimport (\n")
	given := docGiven + "\n" + body
	for name, path := range docImports {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(given) {
			fmt.Fprintf(&b, "\t%s %q\n", name, path)
		}
	}
	fmt.Fprintf(&b, ")\n\nfunc block%d(%s) error {\n{\n//line %s:1\n%s", number, docGiven, page, strings.TrimPrefix(body, "\n"))
	for _, name := range docDeclared(t, page, body) {
		fmt.Fprintf(&b, "_ = %s\n", name)
	}
	b.WriteString("}\nreturn nil\n}\n")
	return b.String()
}

// docDeclared are the variables that a block declares and need not use.
func docDeclared(t *testing.T, page, body string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), page, "package x\nfunc f() {\n"+body+"\n}", 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, stmt := range file.Decls[0].(*ast.FuncDecl).Body.List {
		if assign, ok := stmt.(*ast.AssignStmt); ok && assign.Tok == token.DEFINE {
			for _, left := range assign.Lhs {
				names = append(names, left.(*ast.Ident).Name)
			}
		}
	}
	return names
}

var (
	docQualified = regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	docMember    = regexp.MustCompile(`(?:^|[^.\w])([A-Z]\w*)\.([A-Z]\w*)`)
	docCode      = regexp.MustCompile("`[^`\n]+`")
)

// Every name of a package, a type, a method or a field that pages use in passing is one.
func TestDocNames(t *testing.T) {
	known := declaredNames(t)
	count := 0
	check := func(page, name, within string) {
		if known[within] {
			count++
			if !known[name] {
				t.Errorf("%s: there is no %s", page, name)
			}
		}
	}
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range docCode.FindAllString(string(text), -1) {
			for _, m := range docQualified.FindAllStringSubmatch(code, -1) {
				check(page, m[1]+"."+m[2], m[1])
				if m[3] != "" {
					check(page, m[2]+"."+m[3], m[2])
				}
			}
			for _, m := range docMember.FindAllStringSubmatch(code, -1) {
				check(page, m[1]+"."+m[2], m[1])
			}
		}
	}
	if count < 60 {
		t.Errorf("only %d names were found", count)
	}
}

// declaredNames are the packages, their exported names (policy.Parse), types, and the
// methods and fields of types (Session.Wrap).
func declaredNames(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "examples"):
			return fs.SkipDir
		case filepath.Ext(p) != ".go" || strings.HasSuffix(p, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err == nil && file.Name.Name != "main" {
			declareFile(known, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return known
}

func declareFile(known map[string]bool, file *ast.File) {
	known[file.Name.Name] = true
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				known[file.Name.Name+"."+decl.Name.Name] = true
			} else {
				known[typeName(decl.Recv.List[0].Type)+"."+decl.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				declareSpec(known, file.Name.Name, spec)
			}
		}
	}
}

func declareSpec(known map[string]bool, pkg string, spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			known[pkg+"."+name.Name] = true
		}
	case *ast.TypeSpec:
		known[pkg+"."+spec.Name.Name], known[spec.Name.Name] = true, true
		var fields *ast.FieldList
		switch shape := spec.Type.(type) {
		case *ast.StructType:
			fields = shape.Fields
		case *ast.InterfaceType:
			fields = shape.Methods
		default:
			return
		}
		for _, field := range fields.List {
			for _, name := range field.Names {
				known[spec.Name.Name+"."+name.Name] = true
			}
		}
	}
}

// typeName is the type of a receiver without its star and parameters.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
