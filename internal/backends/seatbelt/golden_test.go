package seatbelt

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/goldentest"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

const golden = "testdata/profiles"

// C5 W5 F11: the profile and the gaps for each policy on each recorded Mac, as a
// person has looked at them, without the patterns of presets, which are many and
// the same everywhere.
func TestGoldenProfiles(t *testing.T) {
	files := map[string]bool{}
	for _, c := range goldentest.MacCases(t) {
		file := filepath.Join(golden, c.Name+".sb")
		files[file] = true
		t.Run(c.Name, func(t *testing.T) { goldentest.Compare(t, file, launchText(t, c)) })
	}
	goldentest.OnlyThese(t, golden, files)
}

func launchText(t *testing.T, c goldentest.Case) string {
	t.Helper()
	p := planOf(t, c)
	p.Globs = slices.DeleteFunc(p.Globs, func(g plan.Glob) bool {
		return g.Origin.Layer == policy.LayerPreset && !strings.Contains(g.Pattern, "vscode")
	})
	p.Absent = slices.DeleteFunc(p.Absent, func(e plan.Absent) bool { return !strings.Contains(e.Path, "/.gnupg") })
	parsed(t, p)
	l, err := New(nil).Compile(p, c.Host)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n; %s -p PROFILE %s\n; in %s, variables %s\n", l.Profile, l.Path, strings.Join(l.Argv[3:], " "), l.Dir, names(l.Env))
	for _, g := range l.Gaps {
		optional := ""
		if g.Optional {
			optional = " [optional]"
		}
		fmt.Fprintf(&b, "; gap%s %s\n", optional, g)
	}
	return b.String()
}

func names(env []string) string {
	var out []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func planOf(t testing.TB, c goldentest.Case) *plan.Plan {
	t.Helper()
	p, err := resolve.Resolve(c.Policy, resolve.Request{Workspace: c.Host.Cwd, Name: c.Command}, c.Host)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A1: the profile of a whole preset can be read, has half of the bound at most, and is the
// same for the same plan; the default policies run although they are strict.
func TestWholePresets(t *testing.T) {
	for _, c := range goldentest.MacCases(t) {
		p := planOf(t, c)
		_, text := parsed(t, p)
		l, err := New(nil).Compile(p, c.Host)
		if err != nil {
			t.Fatal(err)
		}
		if l.Profile != text || len(text) > maxProfile/2 {
			t.Errorf("%s: two profiles differ, or one has %d bytes", c.Name, len(text))
		}
		hard := slices.DeleteFunc(slices.Clone(l.Gaps), func(g backend.Gap) bool { return g.Optional })
		if strings.HasSuffix(c.Name, ".rich") != (len(hard) > 0) {
			t.Errorf("%s: gaps that refuse: %v", c.Name, hard)
		}
		t.Logf("%s: %d bytes, %d rules", c.Name, len(text), strings.Count(text, "\n("))
	}
}
