package policy

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// errorsOf returns all syntax errors of a joined error.
func errorsOf(t testing.TB, err error) []*Error {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		var one *Error
		if !errors.As(err, &one) {
			t.Fatalf("%v is a %T, not a Error", err, err)
		}
		return []*Error{one}
	}
	var out []*Error
	for _, e := range joined.Unwrap() {
		out = append(out, errorsOf(t, e)...)
	}
	return out
}

// F4, F6, F7: each mistake is an error that names its place and the fix.
func TestParseErrors(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"unknown key", "paths:\n  wirte: [/a]", `f:2:3: paths.wirte: unknown key; did you mean "write"?`},
		{"plural of a key", "paths:\n  hides: [/a]", `f:2:3: paths.hides: unknown key; did you mean "hide"?`},
		{"spelling of a key", "allowPrivileged: true", `f:1:1: allowPrivileged: unknown key; did you mean "allow_privileged"?`},
		{"key of another section", "write: [/a]", `f:1:1: write: unknown key; did you mean "paths.write"?`},
		{"no key is near", "home: {colour: red}", `f:1:8: home.colour: unknown key; known here: value, visible`},
		{"number for a list", "paths:\n  write: 5", `f:2:10: paths.write: must be a list of paths, not a number`},
		{"text for a list", "paths: {hide: /a}", `f:1:15: paths.hide: must be a list of paths, not a text; write ["/a"]`},
		{"list for a mapping", "paths: [/a]", `f:1:8: paths: must be a mapping, not a list`},
		{"number for a path", "paths: {write: [5]}", `f:1:17: paths.write[0]: must be a path or {path: …, optional: …, reason: …}, not a number`},
		{"number for a host", "network: {allow: [[a]]}", `f:1:19: network.allow[0]: must be a host such as example.com:443 or {host: …, port: …, protocol: …, methods: …, paths: …}, not a list`},
		{"yes for true", "enabled: yes", `f:1:10: enabled: must be true or false, not a text`},
		{"boolean for a text", "env: {set: {CI: true}}", `f:1:17: env.set.CI: must be a text, not a boolean; write it in quotes, "true"`},
		{"text for the document", "hello", `f:1:1: must be a mapping, not a text`},
		{"a mark in the long form", "paths: {hide: [{path: \"?secrets\", reason: keys}]}", `f:1:16: paths.hide[0]: "?secrets" begins with ?, which is no part of a path; write {path: "secrets", optional: true}, or ./?secrets for a pattern`},
		{"two marks", "paths: {hide: [\"??/a\"]}", `f:1:16: paths.hide[0]: "?/a" begins with ?, which is no part of a path; write {path: "/a", optional: true}, or ./?/a for a pattern`},
		{"a bare tilde", "paths: {read: [/a, ~]}", `f:1:20: paths.read[1]: ~ by itself means no value in YAML; write "~" in quotes for the home folder`},
		{"no value", "paths:\n  write:", `f:2:9: paths.write: has no value; remove the key, or give it a value`},
		{"tag", "remap: !!str /w", `f:1:8: remap: tags such as !!str are not allowed; leave the tag out`},
		{"merge key", "home: &a {visible: true}\n<<: *a", `f:2:1: <<: merge keys are not supported; write the keys out`},
		{"key twice", "tmp: private\nreads: host\ntmp: shared", `f:3:1: tmp: the key is there twice, first on line 1; keep one of them`},
		{"key that is a list", "[a]: b", `f:1:1: a key must be text`},
		{"empty path", `paths: {read: [""]}`, `f:1:16: paths.read[0]: the path is empty; name a path, or remove the entry`},
		{"only a question mark", `paths: {read: ["?"]}`, `f:1:16: paths.read[0]: the path is empty; name a path, or remove the entry`},
		{"entry without path", "paths: {read: [{optional: true}]}", `f:1:16: paths.read[0]: the path is empty; name a path, or remove the entry`},
		{"relative path", "paths: {write: [out/x]}", `f:1:17: paths.write[0]: "out/x" is relative, and this policy has no folder of its own; write an absolute path, ~/out/x or urn:cloche:workspace/out/x`},
		{"other user's home", "paths: {write: [~bob/x]}", `f:1:17: paths.write[0]: "~bob/x": the home folder of another user is not looked up; write its absolute path`},
		{"unknown urn", `paths: {write: ["urn:cloche:home/x"]}`, `f:1:17: paths.write[0]: unknown name "urn:cloche:home/x"; known: urn:cloche:cwd, urn:cloche:workspace, urn:cloche:document, urn:cloche:self`},
		{"foreign urn", `paths: {write: ["urn:isbn:1"]}`, `f:1:17: paths.write[0]: unknown name "urn:isbn:1"; known: urn:cloche:cwd, urn:cloche:workspace, urn:cloche:document, urn:cloche:self`},
		{"open brace", `paths: {write: ["${HOME/x"]}`, `f:1:17: paths.write[0]: "${HOME/x": only } or :- may follow the name of a variable in braces`},
		{"open default", `paths: {write: ["${A:-/x"]}`, `f:1:17: paths.write[0]: "${A:-/x": the brace is never closed; add }`},
		{"lone dollar", `paths: {write: ["/a$/b"]}`, `f:1:17: paths.write[0]: "/a$/b": no variable name follows the dollar; write $$ for a dollar in a name`},
		{"NUL in a path", `paths: {write: ["/a\0b"]}`, `f:1:17: paths.write[0]: holds a NUL byte; remove it`},
		{"open bracket", `paths: {hide: ["**/a[b"]}`, `f:1:16: paths.hide[0]: "**/a[b" is no pattern: a bracket or brace is not closed, a class has no characters, or nothing follows the last backslash; close it, or write \[, \{ or \\ for the character itself`},
		{"slash in braces", `paths: {protect: ["x/{a/b,c}"]}`, `f:1:19: paths.protect[0]: "x/{a/b,c}" is no pattern: alternatives in braces hold a slash; write an entry for each`},
		{"above any depth", `paths: {hide: ["**/../x"]}`, `f:1:16: paths.hide[0]: "**/../x" names no file below **; write the name of a file or folder after **/`},
		{"braces of a name that is found", `paths: {hide_found: ["**/.env.{a,b}"]}`, `f:1:22: paths.hide_found[0]: "**/.env.{a,b}" is not a pattern of a name; write a plain name with * and ?`},
		{"glob socket", `sockets: ["/run/*.sock"]`, `f:1:11: sockets[0]: "/run/*.sock" holds *, ?, [ or {a,b}, and globs are not allowed here; write the path out`},
		{"unknown value", "reads: all", `f:1:8: reads: "all" is not one of system, host`},
		{"unknown mode", "network: on", `f:1:10: network: "on" is not one of none, loopback, user, host`},
		{"unknown env policy", "env: {policy: clean}", `f:1:15: env.policy: "clean" is not one of list, scrubbed, inherit`},
		{"version", "version: 2", `f:1:10: version: version 2 is not known; write version: 1`},
		{"version as text", `version: "1"`, `f:1:10: version: must be a number, not a text`},
		{"unknown preset", "presets: [wrokspace]", `f:1:11: presets[0]: unknown preset "wrokspace"; did you mean "workspace"?`},
		{"enabled twice", "enabled: true\nsandbox: true", `f:2:10: sandbox: says the same as enabled on line 1; keep one of them`},
		{"fallback twice", "backend: {fallback: warn}\nfallback: warn", `f:2:11: fallback: says the same as backend.fallback on line 1; keep one of them`},
		{"write and hide", "paths:\n  write: [/a/]\n  hide:\n    - /a", `f:4:7: paths.hide[0]: "/a" is already in paths.write on line 2; keep one of them`},
		{"write and protect", "paths: {write: [~/a], protect: [~/a/]}", `f:1:33: paths.protect[0]: "~/a" is already in paths.write on line 1; keep one of them`},
		{"allow with none", "network:\n  mode: none\n  allow: [a.example]", `f:3:3: network.allow: a list of allowed hosts has no meaning with mode none on line 2; write mode: user, or remove the list`},
		{"allow with host", "network: {mode: host, allow: [a.example]}", `f:1:23: network.allow: a list of allowed hosts has no meaning with mode host on line 1; write mode: user, or remove the list`},
		{"deny with host", "network: {mode: host, deny: [a.example]}", `f:1:23: network.deny: hosts cannot be denied with mode host on line 1, which shares the host's network unjudged; write mode: user, or remove the list`},
		{"denied and private", `network: {deny: [{host: a.example, private: true}]}`, `f:1:18: network.deny[0]: "a.example" is denied, whatever addresses it leads to; leave private out`},
		{"URL", `network: {allow: ["ftp://a.example/"]}`, `f:1:19: network.allow[0]: "ftp://a.example/" has the unknown scheme "ftp"; write tcp://, udp://, icmp://, http:// or https://, or the host alone`},
		{"size", "limits: {memory: lots}", `f:1:18: limits.memory: "lots" is not a size; write a number and a unit such as 4GiB, 10MB or 512k, or unlimited`},
		{"time without unit", "limits: {time: 10}", `f:1:16: limits.time: the time "10" has no unit; write 10s for seconds, 10m for minutes`},
		{"count of zero", "limits: {processes: 0}", `f:1:21: limits.processes: "0" is not a count; write a number above zero, or unlimited`},
		{"bind", `binds: ["/a:/b:/c:ro"]`, `f:1:9: binds[0]: the bind "/a:/b:/c:ro" has too many parts; write path, path:ro, src:dst or src:dst:ro; a path with a colon needs {source: …, target: …}`},
		{"relative bind target", `binds: ["/a:b"]`, `f:1:9: binds[0]: "b" is relative; write an absolute path`},
		{"remap", "remap: /", `f:1:8: remap: the workspace cannot take the place of the root folder; write a path such as /workspace`},
		{"pass everything", `env: {pass: ["*"]}`, `f:1:14: env.pass[0]: "*" is every variable; write env policy inherit`},
		{"pass with value", `env: {pass: [A=b]}`, `f:1:14: env.pass[0]: "A=b" is not a variable's name; write NAME alone, and its value under env.set`},
		{"test of nothing", "tests: [{want: allow}]", `f:1:9: tests[0]: a test checks one action, and this has 0; write one of read, write, exec, connect`},
		{"test without answer", "tests: [{read: /a, want: maybe}]", `f:1:26: tests[0].want: "maybe" is not one of allow, deny; write want: allow or want: deny`},
		{"two documents", "tmp: shared\n---\ntmp: private", `f:2:1: a second document starts here; keep one document in the file`},
		{"NUL byte", "tmp: shared\nx\x00", `f:2:2: holds a NUL byte; remove it`},
		{"not UTF-8", "tmp: \xff", `f:1:6: holds a byte that is not UTF-8; save the file as UTF-8`},
		{"not YAML", "paths: {write: [", `f:1:1: not valid YAML: did not find expected node content`},
		{"star without quotes", "network:\n  allow: [*.example.com]", "f:2:1: not valid YAML: did not find expected alphabetic or numeric character; put text that starts with * & ! % @ or ` in quotes, and indent with spaces"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("f", []byte(tt.text))
			if err == nil {
				t.Fatalf("%s parses; want %s", tt.text, tt.want)
			}
			if got := errorsOf(t, err)[0].Error(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestParseReportsAllErrors(t *testing.T) {
	_, err := Parse("f", []byte("tmp: x\nreads: y\npaths: {wirte: [/a]}\n"))
	if got := len(errorsOf(t, err)); got != 3 {
		t.Errorf("got %d errors, want 3: %v", got, err)
	}
	_, err = Parse("f", []byte("presets: [a, b]\npaths: {read: [x, y]}\n"))
	if got := len(errorsOf(t, err)); got != 4 {
		t.Errorf("got %d errors, want 4: %v", got, err)
	}
}

func TestParseBoundsHostileFiles(t *testing.T) {
	big := strings.Repeat("#", MaxFileSize+1)
	if _, err := Parse("f", []byte(big)); err == nil || !strings.Contains(err.Error(), "larger than 1MiB") {
		t.Errorf("a file of %d bytes: %v", len(big), err)
	}
	// Each alias stands for a mapping of many wrong keys.
	keys := make([]string, 5000)
	for i := range keys {
		keys[i] = "k" + string(rune('a'+i%26)) + strings.Repeat("x", i%50) + ": 1"
	}
	bomb := "x: &a {" + strings.Join(keys, ", ") + "}\npaths:\n  read: [" + strings.Repeat("*a, ", 20000) + "]\n"
	_, err := Parse("f", []byte(bomb))
	if n := len(errorsOf(t, err)); n == 0 || n > maxErrors {
		t.Errorf("%d errors, want 1 to %d", n, maxErrors)
	}
	valid := "paths:\n  read: [&a {path: /a}" + strings.Repeat(", *a", 250_000) + "]\n"
	if _, err := Parse("f", []byte(valid)); err == nil || !strings.Contains(err.Error(), "holds more than 200000 values") {
		t.Errorf("many aliases: %v", err)
	}
}

// F4, L1, W2: the good files, in every form, with the folder they are joined to.
func TestParseGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/good/*")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			doc := parseFile(t, file, "/proj")
			text, err := json.MarshalIndent(&doc.content, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata/golden", filepath.Base(file)+".document"), string(text)+"\n")
		})
	}
}

func parseFile(t testing.TB, file, base string) *Document {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := ParseIn(filepath.Base(file), base, data)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.ReplaceAll(string(want), "\r\n", "\n"); got != want {
		t.Errorf("%s is not as expected (-update rewrites it); got:\n%s", file, got)
	}
}

// A document written as JSON reads back as itself.
func TestDocumentRoundTrip(t *testing.T) {
	files, _ := filepath.Glob("testdata/good/*")
	for _, file := range files {
		doc := parseFile(t, file, "/proj")
		text, err := json.Marshal(&doc.content)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("again", text)
		if err != nil {
			t.Fatalf("%s: %v\n%s", file, err, text)
		}
		for _, d := range []*Document{doc, again} {
			d.content.Name, d.content.Base, d.content.origins = "", "", nil
		}
		if !reflect.DeepEqual(doc, again) {
			t.Errorf("%s: %s reads back differently", file, text)
		}
	}
}

// F4: relative paths start at the document's folder; other forms stay.
func TestRelativePaths(t *testing.T) {
	tests := []struct{ base, path, want string }{
		{"/p", ".", "/p"},
		{"/p", "./out/x", "/p/out/x"},
		{"/p", "secrets/", "/p/secrets"},
		{"/p", "../q", "/q"},
		{"/p", "*.pem", "/p/*.pem"},
		{"/p", "**/*.pem", "**/*.pem"},
		{"/p", "a/${B:-c/../d}", "/p/a/${B:-c/../d}"},
		{"/p", "/abs/../x", "/abs/../x"},
		{"/p", "cwd", "cwd"},
		{"/p", "cwd/a", "cwd/a"},
		{"/p", "cwda", "/p/cwda"},
		{"/p", "~", "~"},
		{"/p", "./~bob", "/p/~bob"},
		{"/p", "$HOME/x", "$HOME/x"},
		{"/p", "$$odd", "/p/$$odd"},
		{"/p/$x", "a", "/p/$$x/a"},
		{"/p", "urn:cloche:workspace/a", "urn:cloche:workspace/a"},
	}
	for _, tt := range tests {
		got, err := pathUse{globs: true}.settle(tt.base, tt.path)
		if err != nil || got != tt.want {
			t.Errorf("%q in %s: got %q, %v; want %q", tt.path, tt.base, got, err, tt.want)
		}
	}
	if _, err := (pathUse{globs: true, lasting: true}).settle("/p[1]", "secrets"); err == nil {
		t.Error("a folder whose name is a glob would make a rule that matches nothing, and is accepted")
	}
	if got, err := (pathUse{globs: true}).settle("/p[1]", "out"); err != nil || got != "/p[1]/out" {
		t.Errorf("got %q, %v", got, err)
	}
}

// L1
func TestParseBind(t *testing.T) {
	tests := []struct {
		text string
		want Bind
	}{
		{"/a", Bind{Source: "/a"}},
		{"/a:ro", Bind{Source: "/a", ReadOnly: true}},
		{"/a:rw", Bind{Source: "/a"}},
		{"/a:/b", Bind{Source: "/a", Target: "/b"}},
		{"/a:/b:ro", Bind{Source: "/a", Target: "/b", ReadOnly: true}},
		{"?~/a:/b", Bind{Source: "~/a", Target: "/b", Optional: true}},
		{"${A:-/x:y}:/b:ro", Bind{Source: "${A:-/x:y}", Target: "/b", ReadOnly: true}},
		{"${A:-${B:-/c}/d}", Bind{Source: "${A:-${B:-/c}/d}"}},
		{"urn:cloche:workspace:ro", Bind{Source: "urn:cloche:workspace", ReadOnly: true}},
		{"urn:cloche:cwd/a:urn:cloche:workspace/b", Bind{Source: "urn:cloche:cwd/a", Target: "urn:cloche:workspace/b"}},
		{"ro", Bind{Source: "ro"}},
	}
	for _, tt := range tests {
		if got, err := parseBind(tt.text); err != nil || got != tt.want {
			t.Errorf("%q: got %+v, %v; want %+v", tt.text, got, err, tt.want)
		}
	}
	for _, bad := range []string{"", ":", "/a:", ":/b", "/a:/b:/c", "/a::ro", "/a:/b:ro:ro"} {
		if got, err := parseBind(bad); err == nil {
			t.Errorf("%q reads as %+v", bad, got)
		}
	}
}
