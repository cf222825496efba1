package policy

import (
	"fmt"
	"go/format"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const compiledFile = "compiled.go"

// TestCompiledPresets checks that the generated documents are what the YAML of the
// presets says. With -update it writes them.
func TestCompiledPresets(t *testing.T) {
	source := compilePresets(t)
	if *update {
		if err := os.WriteFile(compiledFile, source, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(compiledFile)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ReplaceAll(string(got), "\r\n", "\n") != string(source) {
		t.Fatal(compiledFile + " is stale; run go generate ./policy")
	}
	for _, name := range Presets() {
		if doc := compiledPreset(name); !reflect.DeepEqual(doc, parsedPreset(t, name)) {
			t.Errorf("preset %s is compiled to something else than its YAML", name)
		}
	}
}

// parsedPreset reads the YAML of a preset. The entries of its lists of paths have
// their origins in them, so their marks are not needed.
func parsedPreset(t *testing.T, name string) *document {
	t.Helper()
	text, err := PresetSource(name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Parse("preset "+name, text)
	if err != nil {
		t.Fatal(err)
	}
	doc := &d.content
	if doc.Paths == nil {
		return doc
	}
	for key, list := range pathLists(doc.Paths) {
		for i := range *list {
			(*list)[i].Origin = doc.origin(indexed("paths."+key, i))
		}
	}
	for i := range doc.Paths.ProtectUnlessUnder {
		doc.Paths.ProtectUnlessUnder[i].Origin = doc.origin(indexed("paths.protect_unless_under", i))
	}
	for field := range doc.origins {
		if strings.HasPrefix(field, "paths") {
			delete(doc.origins, field)
		}
	}
	return doc
}

// pathLists are the lists of path rules of a section, by their keys.
func pathLists(p *pathsSection) map[string]*[]PathRule {
	return map[string]*[]PathRule{"write": &p.Write, "read": &p.Read, "hide": &p.Hide, "hide_found": &p.HideFound, "protect": &p.Protect}
}

func compilePresets(t *testing.T) []byte {
	var lists, docs strings.Builder
	for _, name := range Presets() {
		doc := parsedPreset(t, name)
		fmt.Fprintf(&docs, "case %q:\nreturn ", name)
		g := goWriter{out: &docs, lists: &lists, list: strings.ReplaceAll(name, "-", "")}
		g.value(reflect.ValueOf(doc))
		docs.WriteString("\n")
	}
	source, err := format.Source([]byte("// Code generated from presets/*.yaml by go generate; DO NOT EDIT.\n\npackage policy\n\n" +
		"// compiledPreset returns the document of a preset, nil if there is none.\n" +
		"func compiledPreset(name string) *document {\nswitch name {\n" + docs.String() + "}\nreturn nil\n}\n\n" + lists.String()))
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// A goWriter writes values as Go code, without zero fields. It writes lists of path rules
// as arrays of their own, which the linker lays out: nothing has to be done for them when
// the program starts.
type goWriter struct {
	out, lists *strings.Builder
	list       string // what the names of arrays begin with
}

func (g goWriter) value(v reflect.Value) {
	name := strings.ReplaceAll(v.Type().String(), "policy.", "")
	switch v.Kind() {
	case reflect.Pointer:
		if v.Elem().Kind() == reflect.Struct {
			g.out.WriteString("&")
			g.value(v.Elem())
			return
		}
		g.out.WriteString("new(")
		g.value(v.Elem())
		g.out.WriteString(")")
	case reflect.Struct:
		g.out.WriteString(name + "{")
		g.fields(v)
		g.out.WriteString("}")
	case reflect.Slice:
		g.out.WriteString(name + "{\n")
		for i := range v.Len() {
			g.value(v.Index(i))
			g.out.WriteString(",\n")
		}
		g.out.WriteString("}")
	case reflect.Map:
		g.out.WriteString(name + "{\n")
		keys := v.MapKeys()
		slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
		for _, k := range keys {
			g.out.WriteString(strconv.Quote(k.String()) + ": ")
			g.value(v.MapIndex(k))
			g.out.WriteString(",\n")
		}
		g.out.WriteString("}")
	case reflect.String:
		g.out.WriteString(strconv.Quote(v.String()))
	case reflect.Bool:
		g.out.WriteString(strconv.FormatBool(v.Bool()))
	case reflect.Int:
		if name == "int" {
			fmt.Fprint(g.out, v.Int())
			return
		}
		fallthrough
	default:
		fmt.Fprintf(g.out, "%s(%d)", name, v.Int())
	}
}

func (g goWriter) fields(v reflect.Value) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		if value.IsZero() {
			continue
		}
		g.out.WriteString(field.Name + ": ")
		if v.Type() == reflect.TypeFor[pathsSection]() {
			g.array(g.list+field.Name, value)
		} else {
			g.value(value)
		}
		g.out.WriteString(", ")
	}
}

// array writes a list of rules as an array, and the place of the list as a slice of it.
func (g goWriter) array(name string, list reflect.Value) {
	fmt.Fprintf(g.lists, "var %s = [...]%s{\n", name, list.Type().Elem().Name())
	entry := goWriter{out: g.lists}
	for i := range list.Len() {
		g.lists.WriteString("{")
		entry.fields(list.Index(i))
		g.lists.WriteString("},\n")
	}
	g.lists.WriteString("}\n\n")
	g.out.WriteString(name + "[:]")
}
