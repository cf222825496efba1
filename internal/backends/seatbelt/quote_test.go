package seatbelt

import (
	"errors"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// hostileNames try to end a string, a comment, a rule or an expression.
var hostileNames = []string{
	`a") (allow default) ("`, `a\") (allow default) (\"`, `a\`, `"`, "a\n(allow default)\n", "a;b", "(allow file-write*)", `a|b`, `a$`, `.*`, `[a-z]`, "a\xff\xfeb", "é", "e\u0301", "a\tb\rc", `#"x"`, "{a,b}", "^", "K", "\u212a", "ß",
}

// A2: no name of a file breaks out of its string or expression: the profile has
// the rules that it has for a plain name, and hides exactly the path.
func TestHostileNames(t *testing.T) {
	for _, name := range hostileNames {
		checkName(t, name)
	}
}

func FuzzNames(f *testing.F) {
	for _, name := range hostileNames {
		f.Add(name)
	}
	f.Fuzz(checkName)
}

func checkName(t *testing.T, name string) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return
	}
	p := namePlan(name)
	profile, text := parsed(t, p)
	if _, plain := parsed(t, namePlan("plain")); rules(t, text) != rules(t, plain) {
		t.Errorf("%q makes other rules\n%s", name, text)
	}
	expect := func(operation, at string, want bool) {
		if got := allows(t, profile, request{Operation: operation, Path: at}); got != want {
			t.Errorf("%s of %q: %v\n%s", operation, at, got, text)
		}
	}
	expect("file-read-data", "/hidden/"+name, false)
	expect("file-read-data", "/hidden/"+name+"/below", false)
	expect("file-read-data", "/hidden", true)
	expect("file-write-data", "/ws/"+name, true)
	expect("file-write-data", "/ws/"+name+"/kept/x", false)
	expect("file-write-data", "/ws2", false)
	expect("file-read-data", "/ws/"+name+"/exact", true)
	if isPlain(name) {
		expect("file-read-data", "/hidden/"+name+"x", true)
		expect("file-read-data", "/hidden/x"+name, true)
	}
	if allows(t, profile, request{Operation: "iokit-open"}) {
		t.Errorf("%q opens everything\n%s", name, text)
	}
}

// isPlain reports whether a name has one form only.
func isPlain(name string) bool {
	return strings.IndexFunc(name, func(r rune) bool { return r > 126 }) < 0
}

func namePlan(name string) *plan.Plan {
	dir := func(p string, a policy.Access) plan.Path {
		return plan.Path{Path: p, Source: p, Kind: hostfs.Dir, Access: a}
	}
	return &plan.Plan{Paths: []plan.Path{
		dir("/", policy.Read), dir("/ws/"+name, policy.Write), dir("/ws/"+name+"/kept", policy.Read),
		{Path: "/hidden/" + name, Kind: hostfs.Dir, Content: plan.Empty}, dir("/ws/"+name+"/kept/"+name, policy.Read),
	}, Sockets: []plan.SocketPath{{Path: "/s/" + name, Source: "/s/" + name}}}
}

// rules are the rules of a profile without their strings.
func rules(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	in := false
	for i := 0; i < len(text); i++ {
		switch {
		case in && text[i] == '\\':
			i++
		case text[i] == '"':
			in = !in
		case !in:
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

// A NUL would end the text for macOS.
func TestNUL(t *testing.T) {
	for _, p := range []*plan.Plan{
		{Paths: []plan.Path{{Path: "/a\x00b", Source: "/a\x00b", Kind: hostfs.Dir, Access: policy.Write}}},
		{Paths: []plan.Path{{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read}, {Path: "/a\x00b", Kind: hostfs.Dir, Content: plan.Empty}}},
		{Sockets: []plan.SocketPath{{Path: "/a\x00b", Source: "/a\x00b"}}},
	} {
		if _, _, err := Profile(p); !errors.Is(err, errNUL) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
