package landlock

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/goldentest"
	ll "github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/internal/resolve"
)

const golden = "testdata/rules"

// W3 A1 A2: the rules and gaps for each policy on each recorded machine, as a
// person has looked at them.
func TestGoldenRules(t *testing.T) {
	files := map[string]bool{}
	for _, c := range goldentest.Cases(t) {
		file := filepath.Join(golden, c.Name+".txt")
		files[file] = true
		t.Run(c.Name, func(t *testing.T) { goldentest.Compare(t, file, rulesText(t, c)) })
	}
	goldentest.OnlyThese(t, golden, files)
}

func rulesText(t *testing.T, c goldentest.Case) string {
	t.Helper()
	p, err := resolve.Resolve(c.Policy, resolve.Request{Workspace: c.Host.Cwd, Name: c.Command}, c.Host)
	if err != nil {
		t.Fatal(err)
	}
	if c.Host.Landlock.ABI == 0 {
		_, err := New(nil).Compile(p, c.Host)
		return "error: " + err.Error() + "\n"
	}
	r := downgrade(p, c.Host)
	var b strings.Builder
	fmt.Fprintf(&b, "ABI %d\nruleset %v\nfilter %+v\n\nrules\n", c.Host.Landlock.ABI, r.ruleset, r.filter)
	for _, g := range r.grants {
		optional := ""
		if g.optional {
			optional = " (if it is there)"
		}
		fmt.Fprintf(&b, "  %s: %s%s\n", g.path, ll.FileRights(g.rights), optional)
	}
	b.WriteString("\ngaps\n")
	for _, g := range r.gaps {
		fmt.Fprintf(&b, "  %s\n", g)
	}
	return b.String()
}

// The same plan gives the same program, and every program is valid, on both
// architectures.
func TestCompileIsPure(t *testing.T) {
	for _, c := range goldentest.Cases(t) {
		if c.Host.Landlock.ABI == 0 {
			continue
		}
		p, err := resolve.Resolve(c.Policy, resolve.Request{Workspace: c.Host.Cwd, Name: c.Command}, c.Host)
		if err != nil {
			t.Fatal(err)
		}
		one, err := New(nil).Compile(p, c.Host)
		if err != nil {
			t.Fatal(c.Name, err)
		}
		two, err := New(nil).Compile(p, c.Host)
		if err != nil {
			t.Fatal(c.Name, err)
		}
		if one.Program.String() != two.Program.String() || !one.Adopts || one.Namespaces != 0 {
			t.Errorf("%s: two compilations differ, or the launch is not Landlock's", c.Name)
		}
	}
}
