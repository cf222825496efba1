package verify

import (
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/pathx"
)

// N7 N9: a name is found below a folder for every pattern that reaches there.
func TestExamples(t *testing.T) {
	const root, token = "/ws", "t0k3n"
	tests := []struct {
		pattern string
		want    string // the first example; empty for none
	}{
		{"/**/.envrc", "/ws/.cloche-verify-t0k3n/.envrc"},
		{".envrc", "/ws/.cloche-verify-t0k3n/.envrc"},
		{"/ws/**/*.pem", "/ws/.cloche-verify-t0k3n/t0k3n.pem"},
		{"/**/.vscode/tasks.json", "/ws/.cloche-verify-t0k3n/.vscode/tasks.json"},
		{"/ws/*.key", "/ws/t0k3n.key"},
		{"/ws/conf?/[a-c]x", "/ws/confx/ax"},
		{"/ws/[!a]y", "/ws/by"},
		{"/ws/{one,two}.txt", "/ws/one.txt"},
		{"/ws/c{d{e,f}g,h}.x", "/ws/cdeg.x"},
		{`/ws/{a\,b,c}`, "/ws/a,b"},
		{`/ws/\*star`, "/ws/*star"},
		{"/ws/**", "/ws/.cloche-verify-t0k3n"},
		{"/ws/a/**/z/*", "/ws/a/.cloche-verify-t0k3n/z/t0k3n"},
		{"/other/**/*.pem", ""},
		{"/wsx/*.key", ""},
		{"/ws/{open", ""},
	}
	for _, tt := range tests {
		got := examples(tt.pattern, root, token)
		if len(got) == 0 != (tt.want == "") || len(got) > 0 && got[0] != tt.want {
			t.Errorf("examples of %s: %q, want %q first", tt.pattern, got, tt.want)
		}
	}
}

// Whatever the pattern, an example matches it and lies below the root.
func FuzzExamples(f *testing.F) {
	for _, p := range []string{"/**/.envrc", "[a-z]*", "{a,{b,c}}", "[]", "{", `\`, "/ws/[^a]/**/x", "**/**"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		for _, p := range examples(pattern, "/ws", "t0k3n") {
			if !pathx.MatchGlob(pattern, p) || !strings.HasPrefix(p, "/ws/") {
				t.Errorf("%q is no example of %q", p, pattern)
			}
		}
	})
}

// N4 N7: a gap excuses what it is about, and nothing else.
func TestGapCovers(t *testing.T) {
	tests := []struct {
		gap     backend.Gap
		rule    string
		subject string
		want    bool
	}{
		{backend.Gap{Rule: "paths.hide", Subject: "/**/*.pem"}, "paths.hide", "/**/*.pem", true},
		{backend.Gap{Rule: "paths.hide", Subject: "/**/*.pem"}, "paths.hide", "/ws/key", false},
		{backend.Gap{Rule: "paths.hide", Subject: "/**/*.pem"}, "paths.protect", "/**/*.pem", false},
		{backend.Gap{Rule: "paths", Subject: ""}, "paths.protect", "/ws/key", true},
		{backend.Gap{Rule: "path"}, "paths.protect", "/ws/key", false},
		{backend.Gap{Rule: "paths.protect", Subject: "/a, /ws/b"}, "paths.protect", "/ws/b", true},
		{backend.Gap{Rule: "paths.protect", Subject: "/a, /ws/b"}, "paths.protect", "/ws/b/c", true},
		{backend.Gap{Rule: "paths.protect", Subject: "/a, /ws/b"}, "paths.protect", "/ws/bc", false},
		{backend.Gap{Rule: "paths.protect", Subject: "/a, /b, /c and 2 more", Subjects: []string{"/a", "/b", "/c", "/y", "/z"}}, "paths.protect", "/z", true},
		{backend.Gap{Rule: "paths.protect", Subject: "/a, /b, /c and 2 more", Subjects: []string{"/a", "/b", "/c", "/y", "/z"}}, "paths.protect", "/x", false},
		{backend.Gap{Rule: "network.mode", Subject: "user"}, "network.mode", "none", false},
	}
	for _, tt := range tests {
		c := check{rules: []string{tt.rule}, subject: tt.subject, judge: func([]answer) verdict { return broken("it fails") }}
		want := NotHeld
		if tt.want {
			want = Gap
		}
		if f := c.finding(nil, []backend.Gap{tt.gap}, make([]bool, 1)); f.Outcome != want {
			t.Errorf("%v for %s %s: %s, want %s", tt.gap, tt.rule, tt.subject, f.Outcome, want)
		}
	}
}
