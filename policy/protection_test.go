package policy

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/pathx"
)

// protections are the presets whose lists docs/reference/protected-files.md shows.
var protections = []string{"secrets", "dotenv", "sinks", "ci-files"}

// L6 F14: every line of the long lists has a reason, stands there once, and is
// where one looks for it.
func TestProtectionLists(t *testing.T) {
	for _, name := range protections {
		t.Run(name, func(t *testing.T) {
			doc := mustPreset(t, name)
			seen := map[string]bool{}
			for _, e := range slices.Concat(doc.Paths.Hide, doc.Paths.Protect) {
				if e.Reason == "" {
					t.Errorf("%s has no reason", e.Path)
				}
				if seen[e.Path] {
					t.Errorf("%s is listed twice", e.Path)
				}
				seen[e.Path] = true
			}
			for _, e := range doc.Paths.ProtectUnlessUnder {
				if e.Reason == "" || seen["under "+e.Folder] {
					t.Errorf("%s has no reason, or is listed twice", e.Folder)
				}
				seen["under "+e.Folder] = true
			}
			if len(seen) < 20 {
				t.Errorf("only %d lines were looked at", len(seen))
			}
			checkSorted(t, name)
		})
	}
}

// checkSorted wants the lines of each group, which a comment or an empty line
// begins, in the order of their paths.
func checkSorted(t *testing.T, preset string) {
	t.Helper()
	source, err := PresetSource(preset)
	if err != nil {
		t.Fatal(err)
	}
	last, lines := "", 0
	for line := range strings.Lines(string(source)) {
		_, rest, ok := strings.Cut(strings.TrimSpace(line), "- {")
		if !ok {
			last = ""
			continue
		}
		_, rest, _ = strings.Cut(rest, ": ")
		at, _, _ := strings.Cut(strings.ReplaceAll(rest, `"`, ""), ", ")
		if at < last {
			t.Errorf("%s comes after %s", at, last)
		}
		last = at
		lines++
	}
	if lines == 0 {
		t.Error("no line was found")
	}
}

// F14: a pattern that hides makes every file that is opened cost something, so
// the secrets that are hidden by default are none.
func TestSecretsAreNoPatterns(t *testing.T) {
	for _, e := range mustPreset(t, "secrets").Paths.Hide {
		if pathx.IsGlob(e.Path) {
			t.Errorf("%s is a pattern", e.Path)
		}
	}
}

// Sinks hold at any depth, and are a reason not to run on no machine: a preset
// that everybody has must not stop who has an older kernel.
func TestSinksHoldEverywhere(t *testing.T) {
	literal := 0
	for _, e := range mustPreset(t, "sinks").Paths.Protect {
		if !e.Optional {
			t.Errorf("%s is not optional", e.Path)
		}
		name, deep := strings.CutPrefix(e.Path, "**/")
		if !deep {
			literal++
			continue
		}
		// Each wildcard is tried on each name that is written.
		if pathx.IsGlob(name) && (strings.Contains(name, "/") || strings.Count(name, "*") > 1) {
			t.Errorf("%s is slow to judge", e.Path)
		}
		if dir, rest, _ := strings.Cut(name, "/"); dir == ".git" && !strings.HasPrefix(rest, "sl/") {
			t.Errorf("%s: the folders of Git are recognized by their contents", e.Path)
		}
	}
	if literal > 10 {
		t.Errorf("%d paths are looked up at every start", literal)
	}
}

// What people share and the instructions of agents stay writable.
func TestNotProtected(t *testing.T) {
	var patterns []string
	for _, name := range []string{"dotenv", "sinks"} {
		doc := mustPreset(t, name)
		for _, e := range slices.Concat(doc.Paths.Hide, doc.Paths.Protect) {
			patterns = append(patterns, strings.TrimPrefix(e.Path, "**/"))
		}
	}
	for _, name := range []string{".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults", "AGENTS.md", "CLAUDE.md",
		".cursorrules", ".editorconfig", ".gitignore", ".gitattributes", ".bazelrc", "Makefile", "package.json", "conftest.py", "flake.nix"} {
		if i := slices.IndexFunc(patterns, func(p string) bool { ok, _ := path.Match(p, name); return ok }); i >= 0 {
			t.Errorf("%s is matched by %s", name, patterns[i])
		}
	}
}

// F7: an exemption loosens, so a file that is not trusted has none, also by
// naming a preset with some.
func TestExemptionsAreTrusted(t *testing.T) {
	text := "paths: {protect: ['**/.vscode'], protect_unless_under: [third_party, {path: ./gen, reason: made}]}"
	p, ignored := mustMerge(t, Layered{Doc: mustParse(t, "f", text), Layer: LayerProject})
	at := p.Exempt[len(p.Exempt)-2].Origin
	want := []Exemption{{"third_party", "", at}, {"/proj/gen", "made", p.Exempt[len(p.Exempt)-1].Origin}}
	own := slices.DeleteFunc(slices.Clone(p.Exempt), func(e Exemption) bool { return e.Origin.Layer == LayerPreset })
	if !slices.Equal(own, want) || at.Layer != LayerProject || at.String() != "f:1" || len(ignored) != 0 {
		t.Errorf("got %+v, ignored %+v", own, ignored)
	}
	before := len(p.Exempt) - len(own)
	p, ignored = mustMerge(t, Layered{Doc: mustParse(t, "f", text), Layer: LayerProject, Untrusted: true})
	if len(p.Exempt) != before || len(ignored) != 2 || ignored[0].Text != "protect nothing under third_party" {
		t.Errorf("an untrusted file gets %+v, ignored %+v", p.Exempt, ignored)
	}
	if !slices.ContainsFunc(p.Paths, func(r PathRule) bool { return r.Protect && r.Path == "**/.vscode" && r.Origin.Untrusted }) {
		t.Error("an untrusted file protects nothing")
	}
	secrets := Layered{Doc: mustParse(t, "user", "presets: [secrets]"), Layer: LayerUser}
	p, ignored = mustMerge(t, secrets, Layered{Doc: mustParse(t, "f", "presets: [sinks]"), Layer: LayerProject, Untrusted: true})
	if len(p.Exempt) != 0 || len(ignored) == 0 {
		t.Errorf("an untrusted preset exempts %+v, ignored %d", p.Exempt, len(ignored))
	}
}

func TestExemptionErrors(t *testing.T) {
	for text, want := range map[string]string{
		"paths: {protect_unless_under: ['*']}":                 `f:1:32: paths.protect_unless_under[0]: "*" holds *, ?, [ or {a,b}, and globs are not allowed here; write the name out`,
		"paths: {protect_unless_under: ['a/*']}":               `f:1:32: paths.protect_unless_under[0]: "a/*" holds *, ?, [ or {a,b}, and globs are not allowed here; write the path out`,
		"paths: {protect_unless_under: ['..']}":                `f:1:32: paths.protect_unless_under[0]: ".." is not the name of a folder; write ./ in front of a folder's name`,
		"paths: {protect_unless_under: ['']}":                  `f:1:32: paths.protect_unless_under[0]: the path is empty; name a path, or remove the entry`,
		"paths: {protect_unless_under: a}":                     `f:1:31: paths.protect_unless_under: must be a list of folders, not a text; write ["a"]`,
		"paths: {protect_unless_under: [{folder: a}]}":         `f:1:33: paths.protect_unless_under[0].folder: unknown key; known here: path, reason`,
		"paths: {protect_unless_under: ['urn:cloche:nope']}":   `f:1:32: paths.protect_unless_under[0]: unknown name "urn:cloche:nope"; known: urn:cloche:cwd, urn:cloche:workspace, urn:cloche:document, urn:cloche:self`,
		"paths: {protect_unless_under: [{reason: no folder}]}": `f:1:32: paths.protect_unless_under[0]: the path is empty; name a path, or remove the entry`,
	} {
		_, err := ParseIn("f", "/proj", []byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
	for folder, want := range map[string]string{
		"":     "policy: paths.protect_unless_under[0]: the path is empty; name a path, or remove the entry",
		"a/b":  `policy: paths.protect_unless_under[0]: "a/b" is relative, and this policy has no folder of its own; write an absolute path, ~/a/b or urn:cloche:workspace/a/b`,
		"[a]":  `policy: paths.protect_unless_under[0]: "[a]" holds *, ?, [ or {a,b}, and globs are not allowed here; write the name out`,
		"name": "",
		"~/x":  "",
	} {
		err := Policy{Exempt: []Exemption{{Folder: folder}}}.Validate()
		if got := cmp.Or(errText(err), ""); got != want {
			t.Errorf("%q: got %q, want %q", folder, got, want)
		}
	}
	if p := Workspace("/w").With(Set("paths.protect_unless_under", "gen")); p.Exempt[len(p.Exempt)-1] != (Exemption{Folder: "gen", Origin: goAPI}) {
		t.Errorf("got %+v", p.Exempt)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
