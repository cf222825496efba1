package plan

import (
	"slices"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/policy"
)

// F14: folders around a mask are pinned; around a file that was found they are
// not where a broker holds them.
func TestPins(t *testing.T) {
	hidden := func(p string, found bool) Path {
		return Path{Path: p, Access: policy.Hidden, Content: Empty, Kind: hostfs.File, Found: found}
	}
	p := &Plan{Paths: []Path{
		{Path: "/", Access: policy.Read, Source: "/", Kind: hostfs.Dir},
		{Path: "/w", Access: policy.Write, Source: "/w", Kind: hostfs.Dir},
		hidden("/w/a/b/.env", true), hidden("/w/c/key", false), hidden("/w/c/d/.env", true),
	}}
	if got, want := p.Pins(), []string{"/w/a", "/w/a/b", "/w/c", "/w/c/d"}; !slices.Equal(got, want) {
		t.Errorf("pinned are %q, want %q", got, want)
	}
	want := Path{Path: "/w/c", Source: "/w/c", Kind: hostfs.Dir, Access: policy.Write}
	if got := p.PinLines(func(w string) bool { return w == "/w" }); len(got) != 1 || got[0] != want {
		t.Errorf("pinned are %+v, want %+v", got, want)
	}
	if line := p.Lookup("/w/c/key/x"); line.Path != "/w/c/key" || p.Access("/w/a/b/.env") != policy.Hidden || p.Access("/nowhere") != policy.Read {
		t.Errorf("a look-up gives %+v", line)
	}
}

// A path that is written with ".." leads out of no line: it is translated and judged as
// what it means. L3
func TestPathsAreCleaned(t *testing.T) {
	p := &Plan{Paths: []Path{
		{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read},
		{Path: "/workspace", Source: "/home/u/project", Kind: hostfs.Dir, Access: policy.Write},
		{Path: "/home/u/.ssh", Kind: hostfs.Dir, Content: Empty},
	}}
	for inside, want := range map[string]string{
		"/workspace/a": "/home/u/project/a", "/workspace/../.ssh/id_ed25519": "/.ssh/id_ed25519", "/workspace/a/../../etc/passwd": "/etc/passwd",
		"/workspace/../home/u/.ssh/id": "", "/workspace/./b//c": "/home/u/project/b/c", "workspace/a": "", "": "",
	} {
		if got, ok := p.HostPath(inside); got != want || ok != (want != "") {
			t.Errorf("%q is %q, %v on the host", inside, got, ok)
		}
	}
	for outside, want := range map[string]string{
		"/home/u/project/a": "/workspace/a", "/home/u/project/../other": "/home/u/other", "/home/u/project/../.ssh/id": "", "a": "",
	} {
		if got, ok := p.InsidePath(outside); got != want || ok != (want != "") {
			t.Errorf("%q is %q, %v inside", outside, got, ok)
		}
	}
	for inside, want := range map[string]policy.Access{"/workspace/../etc/x": policy.Read, "/workspace/../home/u/.ssh/id": policy.Hidden, "/workspace/x": policy.Write} {
		if got := p.Access(inside); got != want {
			t.Errorf("%q is %v", inside, got)
		}
	}
}
