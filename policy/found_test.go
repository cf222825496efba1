package policy

import (
	"strings"
	"testing"
)

// L6: hide_found takes names at any depth, and nothing else.
func TestHideFound(t *testing.T) {
	for path, ok := range map[string]bool{
		"**/.env": true, "**/*.pem": true, "**/.env.?": true, "**/[a-c]x": true, "**/key file": true,
		".env": false, "~/.env": false, "/a/.env": false, "**/a/.env": false, "**": false, "**/": false, "**/..": false, "**/**": false, "**/[": false, "**/$X": false, "*/x": false,
	} {
		doc, err := Parse("f", []byte("paths: {hide_found: ['"+path+"']}"))
		if (err == nil) != ok {
			t.Errorf("%q: %v", path, err)
			continue
		}
		if !ok {
			if !strings.Contains(err.Error(), "paths.hide_found[0]") {
				t.Errorf("%q: the error is %v", path, err)
			}
			continue
		}
		p, _, err := Merge(Layered{Doc: doc, Layer: LayerUser})
		if err != nil {
			t.Fatal(err)
		}
		last := p.Paths[len(p.Paths)-1]
		if last.Path != path || !last.Found || last.Access != Hidden || last.Origin.Layer != LayerUser {
			t.Errorf("%q became %+v", path, last)
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// L6: a policy built in Go is held to the same.
func TestHideFoundInGo(t *testing.T) {
	if err := (Policy{}).With(Set("paths.hide_found", "**/.env", "**/*.key")).Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []Policy{
		Policy{}.With(Set("paths.hide_found", "**/a/b")),
		{Paths: []PathRule{{Path: "**/.env", Access: Read, Found: true}}},
	} {
		if err := bad.Validate(); err == nil {
			t.Errorf("%+v is taken", bad.Paths)
		}
	}
}
