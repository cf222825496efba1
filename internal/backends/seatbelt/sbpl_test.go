package seatbelt

import "testing"

const head = "(version 1) (deny default) "

// The last rule that matches decides, in either reading unless only one of them
// names the operation.
func TestAllows(t *testing.T) {
	for _, c := range []struct {
		rules         string
		request       request
		order, byName bool
	}{
		{"", request{Operation: "file-read-data", Path: "/a"}, false, false},
		{`(allow file-read* (subpath "/a"))`, request{Operation: "file-read-data", Path: "/a/b"}, true, true},
		{`(allow file-read* (subpath "/a"))`, request{Operation: "file-read-data", Path: "/ab"}, false, false},
		{`(allow file-read* (subpath "/a")) (deny file-read* (literal "/a/b"))`, request{Operation: "file-read-data", Path: "/a/b"}, false, false},
		{`(allow file-read* (subpath "/a")) (deny file-read* (literal "/a/b"))`, request{Operation: "file-read-data", Path: "/a/b/c"}, true, true},
		{`(deny file-write-unlink (literal "/a")) (allow file-write* (subpath "/a"))`, request{Operation: "file-write-unlink", Path: "/a"}, true, false},
		{`(allow file-read* (require-all (subpath "/a") (require-not (regex "^/a/[bB]$"))))`, request{Operation: "file-read-data", Path: "/a/B"}, false, false},
		{`(allow file-read* (require-any (literal "/a") (literal "/b")))`, request{Operation: "file-read-data", Path: "/b"}, true, true},
		{`(allow file-read* (subpath (param "P")))`, request{Operation: "file-read-data", Path: "/p/x"}, true, true},
		{`(allow file-write-unlink (require-all (subpath "/a") (vnode-type DIRECTORY)))`, request{Operation: "file-write-unlink", Path: "/a/d", Folder: true}, true, true},
		{`(allow file-write-unlink (require-all (subpath "/a") (vnode-type DIRECTORY)))`, request{Operation: "file-write-unlink", Path: "/a/f"}, false, false},
		{`(allow network-outbound (remote tcp "*:80"))`, request{Operation: "network-outbound", Remote: &address{Protocol: "tcp", Host: "1.1.1.1", Port: 80}}, true, true},
		{`(allow network-outbound (remote ip))`, request{Operation: "network-outbound", Remote: &address{Protocol: "unix", Path: "/x"}}, false, false},
	} {
		p, err := parseProfile(head+c.rules, map[string]string{"P": "/p"})
		if err != nil {
			t.Errorf("%s: %v", c.rules, err)
			continue
		}
		if order, byName := p.allows(c.request), p.allowsByName(c.request); order != c.order || byName != c.byName {
			t.Errorf("%s: %+v: %v and %v, want %v and %v", c.rules, c.request, order, byName, c.order, c.byName)
		}
	}
}

// What macOS would refuse, or read otherwise, is refused.
func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "(deny default)", head + "(", head + ")", head + `(allow file-read* (literal "a)`, head + `(allow file-raed*)`, head + `(allow file-read* (litteral "/a"))`,
		head + `(allow file-read* (literal "\n"))`, head + `(allow file-read* (regex "a.b"))`, head + `(allow file-read* (regex "^(?i)a"))`, head + `(allow file-read* (literal "a" "b"))`,
		head + `(allow network-outbound (remote ip "10.0.0.1:80"))`, head + `(allow file-read* (subpath (param "Q")))`, head + `(allow file-read* (regex #"^a"))`, head + "(import \"system.sb\")",
		head + `(allow network-outbound (remote unix-socket))`, head + `(allow file-read* (require-not (literal "a") (literal "b")))`, head + "(allow file-read* (literal \"a\x00\"))",
	} {
		if p, err := parseProfile(text, nil); err == nil {
			t.Errorf("%s: taken as %+v", text, p)
		}
	}
}
