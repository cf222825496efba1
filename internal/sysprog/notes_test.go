package sysprog

import (
	"reflect"
	"testing"

	"github.com/cloche-dev/cloche/policy"
)

// F11: programs that share what they say about flags and structs are each their
// own: what is added to one is not in another, and the same calls are equal.
func TestProgramsShareNothingThatChanges(t *testing.T) {
	build := func(path string) *Program {
		p := &Program{}
		b := p.For(policy.Origin{}, "sample")
		fd := b.Openat2(Cwd(), path, OpenPath, ResolveNoSymlinks)
		b.MountSetattr(fd, path, AtRecursive, MountAttr{Set: MountAttrReadOnly})
		b.Mkdirat(fd, path, 0o755)
		b.Exit(0)
		return p
	}
	one, again, other := build("one"), build("one"), build("other")
	if !reflect.DeepEqual(one.Steps, again.Steps) {
		t.Errorf("the same calls gave %v and %v", one.Steps, again.Steps)
	}
	for i := range one.Steps[:3] {
		if one.Steps[i].Args[1].Text != "one" || other.Steps[i].Args[1].Text != "other" {
			t.Errorf("step %d is about %q and %q", i, one.Steps[i].Args[1].Text, other.Steps[i].Args[1].Text)
		}
		if a := one.Steps[i].Args; cap(a) != len(a) {
			t.Errorf("who appends to the arguments of step %d writes into those of the next", i)
		}
	}
}

// F11: what is kept is bounded, and what is not kept is right too.
func TestNotesAreBounded(t *testing.T) {
	var c noteCache[int, int]
	double := func(n int) int { return 2 * n }
	for range 2 {
		for n := range 2 * maxNotes {
			if got := c.get(n, double); got != 2*n {
				t.Fatalf("%d became %d", n, got)
			}
		}
	}
	if len(c.made) > maxNotes {
		t.Errorf("%d are kept", len(c.made))
	}
}
