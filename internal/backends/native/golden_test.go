package native_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/backends/native"
	"github.com/cloche-dev/cloche/internal/goldentest"
	"github.com/cloche-dev/cloche/internal/resolve"
)

const calls = "testdata/calls"

// goldenHosts are the recorded machines whose programs differ in kind: an
// ordinary one, one with links everywhere, and root.
var goldenHosts = []string{"debian-12", "nixos", "root-in-container"}

// F11 A1 A2 A3: the system calls that make the sandbox for each policy on each
// recorded machine, as a person has looked at them.
func TestGoldenCalls(t *testing.T) {
	files := map[string]bool{}
	for _, c := range goldentest.Cases(t) {
		if !slices.ContainsFunc(goldenHosts, func(h string) bool { return strings.HasPrefix(c.Name, h) }) {
			continue
		}
		file := filepath.Join(calls, c.Name+".txt")
		files[file] = true
		t.Run(c.Name, func(t *testing.T) { goldentest.Compare(t, file, callText(t, c)) })
	}
	goldentest.OnlyThese(t, calls, files)
}

func callText(t *testing.T, c goldentest.Case) string {
	t.Helper()
	p, err := resolve.Resolve(c.Policy, resolve.Request{Workspace: c.Host.Cwd, Name: c.Command}, c.Host)
	if err != nil {
		t.Fatal(err)
	}
	l, err := native.New(nil).Compile(p, c.Host)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "namespaces %#x, map-root %v\n\n%s\n", l.Namespaces, l.MapRoot, l.Program)
	for _, g := range l.Gaps {
		fmt.Fprintf(&b, "gap %s\n", g)
	}
	return b.String()
}
