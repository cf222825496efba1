package resolve

import (
	"maps"
	"reflect"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/policy"
)

// N10: a command like the one before it has the plan that it would have had alone,
// whatever differs between the two.
func TestCommandAgain(t *testing.T) {
	p := workspacePolicy()
	remapped := workspacePolicy()
	remapped.Remap = "/workspace"
	requests := []Request{
		{Name: "true", Args: []string{"true", "x"}},
		{Name: "true", Args: []string{"true", "y"}, ExtraFiles: 2},
		{Name: "true", Terminal: true},
		{Name: "/bin/true"},
		{Name: "/bin/true", Dir: "/home/ana/project/src"},
		{Name: "true", Dir: "/home/ana/project/src"},
	}
	for _, p := range []policy.Policy{p, remapped} {
		l, s := mustLayout(t, p), machine()
		for _, r := range append(requests, requests...) {
			for range 3 {
				r.Workspace, r.Unchanged = "/home/ana/project", true
				got, err := l.Command(r, s, nil)
				if err != nil {
					t.Fatal(err)
				}
				if want := mustResolve(t, p, r, s); !reflect.DeepEqual(got, want) {
					t.Errorf("%+v:\ngot  %+v\nwant %+v", r, got, want)
				}
			}
		}
	}
}

// N10: of a repeated command only what nobody watches is looked at: the program.
func TestCommandAgainLooks(t *testing.T) {
	l, s := mustLayout(t, workspacePolicy()), machine()
	tree := &countingFS{Tree: s.FS.(hostfs.Tree)}
	s.FS = tree
	count := func(unchanged bool) int {
		t.Helper()
		before := tree.stats
		if _, err := l.Command(Request{Name: "/bin/true", Unchanged: unchanged}, s, nil); err != nil {
			t.Fatal(err)
		}
		return tree.stats - before
	}
	first, unwatched, watched := count(false), count(false), count(true)
	if first != unwatched || watched < 1 || watched >= first {
		t.Errorf("%d looks, then %d, and %d where %v are watched", first, unwatched, watched, l.Looked())
	}
}

// N10: a program that is gone, is no longer executable or is another kind of thing
// is not taken for the one before.
func TestCommandAgainChanged(t *testing.T) {
	for _, kind := range []string{"", "file", "dir"} {
		l, s := mustLayout(t, workspacePolicy()), machine()
		request := Request{Name: "/usr/bin/true", Unchanged: true}
		for range 2 {
			if _, err := l.Command(request, s, nil); err != nil {
				t.Fatal(err)
			}
		}
		tree := maps.Clone(s.FS.(hostfs.Tree))
		if tree["/usr/bin/true"] = kind; kind == "" {
			delete(tree, "/usr/bin/true")
		}
		s.FS = tree
		if p, err := l.Command(request, s, nil); err == nil {
			t.Errorf("%q: planned %+v", kind, p.Command)
		}
	}
}
