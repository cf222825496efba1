package pathx

import (
	"strings"
	"testing"
)

// N2: a pattern means what it seems to mean, or is an error.
func TestNormalGlob(t *testing.T) {
	for _, c := range []struct{ pattern, want string }{
		{"/**/*.pem", "/**/*.pem"},
		{"/**/{id_rsa,id_ed25519}", "/**/{id_rsa,id_ed25519}"},
		{"/**/a{b{c,d},e}", "/**/a{b{c,d},e}"},
		{"/**/{{name}}", `/**/\{\{name\}\}`},
		{"/x/{one}/{a,b}", `/x/\{one\}/{a,b}`},
		{"/x/{a{b,c}d}", `/x/\{a{b,c}d\}`},
		{"/x/a}", `/x/a\}`},
		{"/x/[{]a", "/x/[{]a"},
		{`/x/\{a,b`, `/x/\{a,b`},
		{"/{a/b}/c", `/\{a/b\}/c`},
	} {
		if got, err := NormalGlob(c.pattern); err != nil || got != c.want {
			t.Errorf("%s: %s, %v, want %s", c.pattern, got, err, c.want)
		}
	}
	for pattern, want := range map[string]*GlobError{
		"/**/a[bc": errMalformed, "/**/{a,b": errMalformed, "/**/[]": errMalformed, `/x/*\`: errMalformed, "/**/{a": errMalformed,
		"/**/{a/b,c}": errSlash, "/x/{a,{b/c,d}}": errSlash,
	} {
		if got, err := NormalGlob(pattern); err != want {
			t.Errorf("%s: %q, %v, want %v", pattern, got, err, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, p := range []string{"/home/ana", "/w[1]", "/a*b?", `/back\slash`, "/{{x}}", "/{a,b}", "/]", "/a]b[c"} {
		q := Quote(p)
		if !ValidGlob(q) || !MatchGlobExactly(q, p) || IsPlain(p) != (p == q) {
			t.Errorf("%s: %s does not match it", p, q)
		}
		if other := strings.NewReplacer("[1]", "1", "*", "x", "?", "x", "{a,b}", "a").Replace(p); other != p && MatchGlobExactly(q, other) {
			t.Errorf("%s: %s matches %s", p, q, other)
		}
	}
}

// What a pattern is relative to stands for itself, and so does a variable's value.
func TestExpandPattern(t *testing.T) {
	env := map[string]string{"NAME": "a*", "DIR": "/d[1]"}
	v := Vars{Home: "/home/{u}", Cwd: "/c", Workspace: "/w[1]", Pattern: true, Env: func(n string) (string, bool) { s, ok := env[n]; return s, ok }}
	for form, want := range map[string]string{
		"~/*.pem": `/home/\{u\}/*.pem`, "~": `/home/\{u\}`, "cwd/*": "/c/*", "urn:cloche:workspace/**/x": `/w\[1]/**/x`,
		"/**/$NAME": `/**/a\*`, "$DIR/*": `/d\[1]/*`, "${NO:-~/x}/*": `/home/\{u\}/x/*`, "/x/[ab]/$$": "/x/[ab]/$",
	} {
		if got, err := Expand(form, v); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", form, got, err, want)
		}
	}
}
