package plan

import (
	"slices"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/policy"
)

// N1: a file of the host is judged where the command sees it, by the widest of those
// places; what is shown nowhere is hidden, whatever else has its name.
func TestJudgeHost(t *testing.T) {
	dir := func(p, source string, a policy.Access) Path {
		return Path{Path: p, Source: source, Kind: hostfs.Dir, Access: a}
	}
	p := &Plan{Workspace: "/h/ws", Inside: "/workspace", Paths: []Path{
		dir("/", "/", policy.Read),
		{Path: "/dev", Kind: hostfs.Dir, Access: policy.Write, Content: Devices},
		{Path: "/h/ws", Kind: hostfs.Dir, Access: policy.Hidden, Content: Empty},
		dir("/kept", "/store/kept", policy.Write),
		{Path: "/opt/x", Source: "/h/ws/f", Kind: hostfs.File, Access: policy.Read},
		{Path: "/opt/y", Source: "/etc/f", Kind: hostfs.File, Access: policy.Write},
		{Path: "/tmp", Kind: hostfs.Dir, Access: policy.Write, Content: Empty},
		dir("/workspace", "/h/ws", policy.Write),
		{Path: "/workspace/secret", Kind: hostfs.Dir, Access: policy.Hidden, Content: Empty},
	}, Globs: []Glob{{Pattern: "/**/*.toml", Access: policy.Read}}}
	j := p.Judge()
	for path, want := range map[string]policy.Access{
		"/h/ws/f":      policy.Write, // also at /opt/x, read-only
		"/h/ws/a.toml": policy.Read,
		"/h/ws/secret": policy.Hidden,
		"/etc/f":       policy.Write, // by /opt/y
		"/etc/g":       policy.Read,
		"/kept/f":      policy.Hidden, // the command has the store's
		"/tmp/f":       policy.Hidden, // the command has its own
		"/dev/null":    policy.Write,
		"/dev/sda":     policy.Hidden,
	} {
		if v, _ := p.JudgeHost(j, path); v.Access != want {
			t.Errorf("%s: %v, want %v", path, v.Access, want)
		}
	}
	if got := p.Places("/h/ws/f"); !slices.Equal(got, []string{"/workspace/f", "/opt/x"}) {
		t.Errorf("places: %q", got)
	}
}
