package plan

import (
	"slices"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/policy"
)

// F14: folders around a mask are pinned; around a file that was found they are
// not where a broker holds them, and the judge does.
func TestPins(t *testing.T) {
	hidden := func(p string, found bool) Path {
		return Path{Path: p, Access: policy.Hidden, Content: Empty, Kind: host.File, Found: found}
	}
	p := &Plan{Paths: []Path{
		{Path: "/", Access: policy.Read, Source: "/", Kind: host.Dir},
		{Path: "/w", Access: policy.Write, Source: "/w", Kind: host.Dir},
		hidden("/w/a/b/.env", true), hidden("/w/c/key", false), hidden("/w/c/d/.env", true),
	}}
	if got, want := p.Pins(), []string{"/w/a", "/w/a/b", "/w/c", "/w/c/d"}; !slices.Equal(got, want) {
		t.Errorf("pinned are %q, want %q", got, want)
	}
	if got, want := p.PinsUnless(func(w string) bool { return w == "/w" }), []string{"/w/c"}; !slices.Equal(got, want) {
		t.Errorf("pinned are %q, want %q", got, want)
	}
	j := p.Judge()
	for _, dir := range []string{"/w/a", "/w/a/b", "/w/c", "/w/c/d", "/w/a/b/.env"} {
		if _, pinned := j.Pinned(dir); !pinned {
			t.Errorf("%s can be moved", dir)
		}
	}
	if _, pinned := j.Pinned("/w/e"); pinned {
		t.Error("/w/e cannot be moved")
	}
	if line := p.Lookup("/w/c/key/x"); line.Path != "/w/c/key" || p.Access("/w/a/b/.env") != policy.Hidden || p.Access("/nowhere") != policy.Read {
		t.Errorf("a look-up gives %+v", line)
	}
}
