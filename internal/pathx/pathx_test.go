package pathx

import (
	"path"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// L3: prefixes end at component boundaries.
func TestWithinBoundaries(t *testing.T) {
	for _, c := range []struct {
		root, p string
		want    bool
	}{
		{"/workspace", "/workspace", true},
		{"/workspace", "/workspace/a", true},
		{"/workspace", "/workspace2", false},
		{"/workspace", "/workspace2/a", false},
		{"/workspace", "/work", false},
		{"/workspace", "/", false},
		{"/workspace/a", "/workspace", false},
		{"/", "/", true},
		{"/", "/anything", true},
	} {
		if got := Within(c.root, c.p); got != c.want {
			t.Errorf("Within(%q, %q) = %v", c.root, c.p, got)
		}
	}
}

// genPath draws clean absolute paths from few components, so that prefixes
// and near misses are common.
func genPath() *rapid.Generator[string] {
	name := rapid.SampledFrom([]string{"a", "aa", "b", "workspace", "workspace2", "..x", "."})
	return rapid.Custom(func(t *rapid.T) string {
		return path.Clean("/" + strings.Join(rapid.SliceOfN(name, 0, 5).Draw(t, "names"), "/"))
	})
}

// genBelow draws a path at or below root.
func genBelow(t *rapid.T, root, label string) string {
	return path.Join(root, genPath().Draw(t, label))
}

func components(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}

// L3: Within agrees with a comparison component by component.
func TestWithinIsComponentPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root, p := genPath().Draw(t, "root"), genPath().Draw(t, "p")
		r, q := components(root), components(p)
		want := len(r) <= len(q) && reflect.DeepEqual(r, q[:min(len(r), len(q))])
		if Within(root, p) != want {
			t.Fatalf("Within(%q, %q) = %v", root, p, !want)
		}
	})
}

// L3: Rel undoes Join, and Rebase is undone by Rebase.
func TestRelAndRebaseRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := genPath().Draw(t, "from"), genPath().Draw(t, "to")
		p := genBelow(t, from, "below")
		if got := path.Join(from, Rel(from, p)); got != p {
			t.Fatalf("Join(%q, Rel) = %q, want %q", from, got, p)
		}
		moved := Rebase(from, to, p)
		if !Within(to, moved) {
			t.Fatalf("Rebase(%q, %q, %q) = %q, outside", from, to, p, moved)
		}
		if back := Rebase(to, from, moved); back != p {
			t.Fatalf("there and back: %q, want %q", back, p)
		}
	})
}

// Between lists each folder strictly between, outermost first.
func TestBetween(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := genPath().Draw(t, "root")
		p := genBelow(t, root, "below")
		got := Between(root, p)
		if want := max(Depth(p)-Depth(root)-1, 0); len(got) != want {
			t.Fatalf("Between(%q, %q) = %q, want %d folders", root, p, got, want)
		}
		last := root
		for _, d := range got {
			if path.Dir(d) != last || !Within(d, p) || d == p {
				t.Fatalf("Between(%q, %q) = %q: %q does not follow %q", root, p, got, d, last)
			}
			last = d
		}
	})
}

// Between of unrelated paths is empty.
func TestBetweenOutside(t *testing.T) {
	if got := Between("/workspace", "/workspace2/a/b"); got != nil {
		t.Errorf("got %q", got)
	}
}

func TestIsGlob(t *testing.T) {
	for in, want := range map[string]bool{"/a/*.pem": true, "/a?": true, "/[ab]": true, "/a/${X}": false, "/a/${X:-a,b}": false, "/plain": false,
		"/{a,b}": true, "/{{x}}": false, "/{a{b,c}}": true, "/{a}{b,c}": true, "/{a,b": false} {
		if IsGlob(in) != want {
			t.Errorf("IsGlob(%q) = %v", in, !want)
		}
	}
}
