package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// F4, F7: nothing panics, every error has a place, and whatever parses also
// merges, trusted or not, and reads back from its own JSON.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*", "presets/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte("paths: &a {write: [*a, {path: *a}]}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte(`{"net": false, "write_paths": ["cwd"], "env": {"vars": ["A"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if caps, err := ParseCapabilities("caps", data); err == nil {
			mustMerge(t, Layered{Doc: caps, Layer: LayerCommand})
		} else {
			checkPlaces(t, err)
		}
		doc, err := ParseIn("f", "/base", data)
		if err != nil {
			checkPlaces(t, err)
			return
		}
		p, ignored := mustMerge(t, Layered{Doc: doc, Layer: LayerProject})
		if len(ignored) > 0 {
			t.Errorf("a trusted document is ignored: %v", ignored)
		}
		checkOrigins(t, p)
		mustMerge(t, Layered{Doc: doc, Layer: LayerProject, Untrusted: true})
		text, err := json.Marshal(&doc.content)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("again", text); err != nil {
			t.Errorf("%s does not read back: %v", text, err)
		}
	})
}

func checkPlaces(t *testing.T, err error) {
	t.Helper()
	for _, e := range errorsOf(t, err) {
		if e.Origin.Line < 1 || e.Origin.Column < 1 || e.Message == "" {
			t.Errorf("no place: %#v", e)
		}
	}
}

func checkOrigins(t *testing.T, p Policy) {
	t.Helper()
	for _, r := range p.Paths {
		if r.Origin.Line < 1 || r.Path == "" {
			t.Errorf("no place or path: %+v", r)
		}
	}
}
