package pathx

import (
	"errors"
	"path"
	"reflect"
	"strings"
	"testing"
)

func testVars() Vars {
	env := map[string]string{
		"CACHE": "/var/cache", "EMPTY": "", "REL": "some/where", "TILDE": "~/.ssh",
		"DOLLAR": "/x/$CACHE", "UP": "/a/../../etc", "NUL": "/a\x00b", "_x9": "/under",
		"BRACES": "/b/${CACHE}", "URN": "urn:cloche:workspace", "CWDTOKEN": "cwd",
	}
	return Vars{
		Home: "/home/ada", Cwd: "/src/app/sub", Workspace: "/src/app", Document: "/src/app/doc.md", Self: "/opt/agent",
		Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}
}

// F4
func TestExpandForms(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"/", "/"},
		{"/data//corpus/./x/", "/data/corpus/x"},
		{"/data/../etc", "/etc"},
		{"/../..", "/"},
		{"~", "/home/ada"},
		{"~/", "/home/ada"},
		{"~/.cache/go-build", "/home/ada/.cache/go-build"},
		{"~/../bob", "/home/bob"},
		{"/x/~", "/x/~"},
		{"/x/~/y~", "/x/~/y~"},
		{"cwd", "/src/app/sub"},
		{"cwd/out", "/src/app/sub/out"},
		{"cwd/..", "/src/app"},
		{"/cwd", "/cwd"},
		{"urn:cloche:cwd", "/src/app/sub"},
		{"urn:cloche:cwd/a/b", "/src/app/sub/a/b"},
		{"urn:cloche:workspace", "/src/app"},
		{"urn:cloche:workspace/out", "/src/app/out"},
		{"urn:cloche:document", "/src/app/doc.md"},
		{"urn:cloche:self", "/opt/agent"},
		{"urn:cloche:document/../img", "/src/app/img"},
		{"$CACHE", "/var/cache"},
		{"$CACHE/go", "/var/cache/go"},
		{"${CACHE}2/go", "/var/cache2/go"},
		{"/srv$CACHE", "/srv/var/cache"},
		{"/srv/${CACHE}/x/$_x9", "/srv/var/cache/x/under"},
		{"${CACHE:-/other}", "/var/cache"},
		{"${NONE:-/other}/x", "/other/x"},
		{"${EMPTY:-/other}", "/other"},
		{"/a/${NONE:-b}/c", "/a/b/c"},
		{"/a/${NONE:-}/c", "/a/c"},
		{"${NONE:-}/c", "/c"},
		{"${NONE:-~/.cache}", "/home/ada/.cache"},
		{"${NONE:-~/.cache}/go", "/home/ada/.cache/go"},
		{"${NONE:-~}/go", "/home/ada/go"},
		{"${NONE:-cwd}/go", "/src/app/sub/go"},
		{"${NONE:-urn:cloche:workspace/y}/go", "/src/app/y/go"},
		{"${NONE:-$CACHE}", "/var/cache"},
		{"${NONE:-${ALSO:-${CACHE}/deep}}/x", "/var/cache/deep/x"},
		{"${NONE:-${ALSO:-~/z}}", "/home/ada/z"},
		{"/a/${NONE:-x~}", "/a/x~"},
		{"/price/$$5", "/price/$5"},
		{"/p/$$CACHE", "/p/$CACHE"},
		{"/odd}brace", "/odd}brace"},
		{"~/**/*.pem", "/home/ada/**/*.pem"},
		{"$UP", "/etc"},
		{"/päth/ü", "/päth/ü"},
	} {
		got, err := Expand(c.in, testVars())
		if err != nil || got != c.want {
			t.Errorf("Expand(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

// F4: what comes from a variable is never read as a path form.
func TestExpandNeverExpandsValues(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"$DOLLAR", "/x/$CACHE"},
		{"$BRACES", "/b/${CACHE}"},
		{"/a/$TILDE", "/a/~/.ssh"},
		{"/a/$URN", "/a/urn:cloche:workspace"},
	} {
		got, err := Expand(c.in, testVars())
		if err != nil || got != c.want {
			t.Errorf("Expand(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"$TILDE", "$URN/x", "${CWDTOKEN}/x", "$REL", "${EMPTY:-}~/x"} {
		var rel *RelativeError
		if got, err := Expand(in, testVars()); !errors.As(err, &rel) {
			t.Errorf("Expand(%q) = %q, %v; want a RelativeError", in, got, err)
		}
	}
}

// F4
func TestExpandErrors(t *testing.T) {
	syntax := func(pos int) error { return &SyntaxError{Pos: pos} }
	for _, c := range []struct {
		in   string
		want error
	}{
		{"$NONE/x", &UnsetError{"NONE"}},
		{"${NONE}", &UnsetError{"NONE"}},
		{"$EMPTY", &UnsetError{"EMPTY"}},
		{"${EMPTY}/x", &UnsetError{"EMPTY"}},
		{"${NONE:-$ALSO}", &UnsetError{"ALSO"}},
		{"urn:cloche:home", &UnknownURNError{"urn:cloche:home"}},
		{"urn:cloche:", &UnknownURNError{"urn:cloche:"}},
		{"urn:other:cwd/x", &UnknownURNError{"urn:other:cwd"}},
		{"URN:cloche:cwd", &UnknownURNError{"URN:cloche:cwd"}},
		{"urn:cloche:cwdx", &UnknownURNError{"urn:cloche:cwdx"}},
		{"urn:cloche:cwd$CACHE", &UnknownURNError{"urn:cloche:cwd$CACHE"}},
		{"${NONE:-urn:cloche:no}", &UnknownURNError{"urn:cloche:no"}},
		{"${CACHE:-urn:cloche:no}", &UnknownURNError{"urn:cloche:no"}},
		{"", &RelativeError{"", ""}},
		{".", &RelativeError{".", "."}},
		{"a/b", &RelativeError{"a/b", "a/b"}},
		{"cwdx/b", &RelativeError{"cwdx/b", "cwdx/b"}},
		{"${NONE:-}", &RelativeError{"${NONE:-}", ""}},
		{"${NONE:-rel}", &RelativeError{"${NONE:-rel}", "rel"}},
		{"$NUL", &ValueError{"NUL"}},
		{"/a\x00b", syntax(2)},
		{"/a/$", syntax(3)},
		{"/a/$/b", syntax(3)},
		{"/a/$1", syntax(3)},
		{"/a/$(id)", syntax(3)},
		{"/a/${", syntax(5)},
		{"/a/${}", syntax(5)},
		{"/a/${1X}", syntax(5)},
		{"/a/${CACHE", syntax(3)},
		{"/a/${CACHE:-x", syntax(3)},
		{"/a/${CACHE-x}", syntax(10)},
		{"/a/${CACHE:=x}", syntax(10)},
		{"/a/${CACHE/x}", syntax(10)},
		{"$NONE/${CACHE", syntax(6)},
		{"${CACHE:-$}", syntax(9)},
		{"/a/${NONE:-~/x}", syntax(11)},
		{"~bob/x", syntax(0)},
		{"~$CACHE", syntax(0)},
		{"${NONE:-~bob}", syntax(8)},
		{strings.Repeat("${A:-", 33) + "/x" + strings.Repeat("}", 33), syntax(32 * 5)},
	} {
		got, err := Expand(c.in, testVars())
		if got != "" || !sameError(err, c.want) {
			t.Errorf("Expand(%q) = %q, %#v; want %#v", c.in, got, err, c.want)
		}
	}
}

// sameError compares types and fields; of a SyntaxError only the position.
func sameError(got, want error) bool {
	if w, ok := want.(*SyntaxError); ok {
		g, ok := got.(*SyntaxError)
		return ok && g.Pos == w.Pos && g.Reason != "" && g.Error() != ""
	}
	return got != nil && reflect.DeepEqual(got, want) && got.Error() != ""
}

// F4: a place without a value is unset, never the root or the empty path.
func TestExpandUnsetPlaces(t *testing.T) {
	for in, name := range map[string]string{
		"~/x": "~", "cwd/x": "cwd", "urn:cloche:cwd": "urn:cloche:cwd",
		"urn:cloche:workspace/x": "urn:cloche:workspace",
		"urn:cloche:document":    "urn:cloche:document",
		"$HOME":                  "HOME",
	} {
		var unset *UnsetError
		if _, err := Expand(in, Vars{}); !errors.As(err, &unset) || unset.Name != name {
			t.Errorf("Expand(%q) with no facts: %v; want UnsetError %q", in, err, name)
		}
	}
}

// F4
func FuzzExpand(f *testing.F) {
	for _, s := range []string{"/a", "~/x", "cwd/y", "${A:-~/.cache}/z", "$A$$", "urn:cloche:document/..", "${A:-${B:-${C}}}", "/a\x00"} {
		f.Add(s, "/value")
		f.Add(s, "~/$A")
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, in, value string) {
		v := testVars()
		v.Env = func(string) (string, bool) { return value, true }
		got, err := Expand(in, v)
		if (err == nil) == (got == "") {
			t.Fatalf("Expand(%q) = %q, %v: need exactly one of result and error", in, got, err)
		}
		if err != nil {
			checkErrorStable(t, in, err)
			return
		}
		if !strings.HasPrefix(got, "/") || path.Clean(got) != got || strings.ContainsRune(got, 0) {
			t.Fatalf("Expand(%q) = %q: not a clean absolute path", in, got)
		}
		literal := strings.ReplaceAll(got, "$", "$$")
		if again, err := Expand(literal, Vars{}); err != nil || again != got {
			t.Fatalf("Expand(%q) = %q, %v: a result must expand to itself", literal, again, err)
		}
	})
}

// checkErrorStable asserts that a mistake in the text is one in every
// environment.
func checkErrorStable(t *testing.T, in string, err error) {
	t.Helper()
	switch e := err.(type) {
	case *SyntaxError:
		if e.Pos < 0 || e.Pos > len(in) {
			t.Fatalf("Expand(%q): position %d is outside", in, e.Pos)
		}
	case *UnknownURNError:
	case *UnsetError, *RelativeError, *ValueError:
		return
	default:
		t.Fatalf("Expand(%q): untyped error %v", in, err)
	}
	if _, other := Expand(in, Vars{}); !reflect.DeepEqual(err, other) {
		t.Fatalf("Expand(%q): %v, but without an environment %v", in, err, other)
	}
}

// F4: the short way for paths below the home folder gives what Expand gives.
func TestInHome(t *testing.T) {
	for _, s := range []string{"~/.ssh", "~/.config/gh/hosts.yml", "~/a.b/..c", "~/**/*.pem", "~/ü", "~/a./b", "~/...", "~/a~"} {
		want, err := Expand(s, testVars())
		if rest, ok := InHome(s); err != nil || ok && testVars().Home+"/"+rest != want {
			t.Errorf("InHome(%q) = %q, %v; Expand gives %q, %v", s, rest, ok, want, err)
		}
	}
	for _, s := range []string{"~/.ssh", "~/a.b/..c", "~/**/*.pem"} {
		if _, ok := InHome(s); !ok {
			t.Errorf("%q takes the long way", s)
		}
	}
	for _, s := range []string{"", "~", "~/", "~x/y", "/a", "~//a", "~/a/", "~/a//b", "~/./a", "~/a/.", "~/..", "~/../a", "~/a/..", "~/a/../b", "~/$X", "~/a\x00", "cwd/a", "${X:-~/a}"} {
		if rest, ok := InHome(s); ok {
			t.Errorf("InHome(%q) = %q", s, rest)
		}
	}
}
