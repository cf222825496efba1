package policy

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const compiledFile = "presets_compiled.go"

// The compiled presets are what their YAML says.
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
	if !bytes.Equal(bytes.ReplaceAll(got, []byte("\r\n"), []byte("\n")), source) {
		t.Fatal(compiledFile + " is stale; run go generate ./policy")
	}
	for _, name := range Presets() {
		want := compiled(mustPreset(t, name))
		if doc := compiledPreset(name); !reflect.DeepEqual(doc, want) {
			t.Errorf("preset %s is compiled to something else than its YAML", name)
		}
	}
}

func mustPreset(t *testing.T, name string) *Document {
	t.Helper()
	doc, err := Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// compiled is a preset in the form that is compiled: its paths as rules, and the
// positions of the fields that are left. Those inside of list entries go, too:
// origins name the entry as a whole.
func compiled(d *Document) *Document {
	m := &merger{}
	m.paths(Layered{Doc: d, Layer: presetLayer(d.Name)})
	d.Paths, d.rules = exemptOnly(d.Paths), m.policy.Paths
	for field := range d.marks {
		exempt := strings.HasPrefix(field, "paths.protect_unless_under")
		if strings.Contains(field, "].") || strings.HasPrefix(field, "paths") && !exempt {
			delete(d.marks, field)
		}
	}
	return d
}

// exemptOnly keeps what does not become a rule.
func exemptOnly(s *PathsSection) *PathsSection {
	if s == nil || s.ProtectUnlessUnder == nil {
		return nil
	}
	return &PathsSection{ProtectUnlessUnder: s.ProtectUnlessUnder}
}

func compilePresets(t *testing.T) []byte {
	var b strings.Builder
	b.WriteString("// Code generated from presets/*.yaml by go generate; DO NOT EDIT.\n\npackage policy\n\n")
	docs := map[string]*Document{}
	for _, name := range Presets() {
		docs[name] = compiled(mustPreset(t, name))
		writeRules(&b, name, docs[name].rules)
	}
	b.WriteString("// compiledPreset returns a new document of the preset, nil if there is none.\n")
	b.WriteString("func compiledPreset(name string) *Document {\nswitch name {\n")
	for _, name := range Presets() {
		fmt.Fprintf(&b, "case %q:\nreturn &", name)
		own := *docs[name]
		own.rules = nil
		literal := &strings.Builder{}
		writeGo(literal, reflect.ValueOf(own))
		// The rules are an array of the program's data, which nothing has to build.
		fmt.Fprintf(&b, "%s, rules: %s[:]}\n", strings.TrimSuffix(literal.String(), ", }"), rulesVariable(name))
	}
	b.WriteString("}\nreturn nil\n}\n")
	source, err := format.Source([]byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// rulesVariable is the name of the variable with the rules of a preset.
func rulesVariable(preset string) string { return strings.ReplaceAll(preset, "-", "") + "Rules" }

func writeRules(b *strings.Builder, preset string, rules []PathRule) {
	fmt.Fprintf(b, "var %s = [...]PathRule{\n", rulesVariable(preset))
	for _, r := range rules {
		b.WriteString("{")
		writeFields(b, reflect.ValueOf(r))
		b.WriteString("},\n")
	}
	b.WriteString("}\n\n")
}

// writeGo writes a value as Go code, without zero fields.
func writeGo(b *strings.Builder, v reflect.Value) {
	name := strings.ReplaceAll(v.Type().String(), "policy.", "")
	switch v.Kind() {
	case reflect.Pointer:
		if v.Elem().Kind() == reflect.Struct {
			b.WriteString("&")
			writeGo(b, v.Elem())
			return
		}
		b.WriteString("ref(")
		writeGo(b, v.Elem())
		b.WriteString(")")
	case reflect.Struct:
		b.WriteString(name + "{")
		writeFields(b, v)
		b.WriteString("}")
	case reflect.Slice:
		b.WriteString(name + "{\n")
		for i := range v.Len() {
			writeGo(b, v.Index(i))
			b.WriteString(",\n")
		}
		b.WriteString("}")
	case reflect.Map:
		b.WriteString(name + "{\n")
		keys := v.MapKeys()
		slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
		for _, k := range keys {
			b.WriteString(strconv.Quote(k.String()) + ": ")
			writeGo(b, v.MapIndex(k))
			b.WriteString(",\n")
		}
		b.WriteString("}")
	case reflect.String:
		b.WriteString(strconv.Quote(v.String()))
	case reflect.Bool:
		b.WriteString(strconv.FormatBool(v.Bool()))
	default:
		fmt.Fprintf(b, "%s(%d)", name, v.Int())
	}
}

func writeFields(b *strings.Builder, v reflect.Value) {
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			b.WriteString(v.Type().Field(i).Name + ": ")
			writeGo(b, v.Field(i))
			b.WriteString(", ")
		}
	}
}
