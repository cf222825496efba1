package judge

import (
	"slices"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// N1: a file of the host is judged where the command sees it, by the widest of those
// places; what is shown nowhere is hidden, whatever else has its name.
func TestHostPath(t *testing.T) {
	dir := func(p, source string, a policy.Access) plan.Path {
		return plan.Path{Path: p, Source: source, Kind: hostfs.Dir, Access: a}
	}
	p := &plan.Plan{Workspace: "/h/ws", Inside: "/workspace", Paths: []plan.Path{
		dir("/", "/", policy.Read),
		{Path: "/dev", Kind: hostfs.Dir, Access: policy.Write, Content: plan.Devices},
		{Path: "/h/ws", Kind: hostfs.Dir, Access: policy.Hidden, Content: plan.Empty},
		dir("/kept", "/store/kept", policy.Write),
		{Path: "/opt/x", Source: "/h/ws/f", Kind: hostfs.File, Access: policy.Read},
		{Path: "/opt/y", Source: "/etc/f", Kind: hostfs.File, Access: policy.Write},
		{Path: "/tmp", Kind: hostfs.Dir, Access: policy.Write, Content: plan.Empty},
		dir("/workspace", "/h/ws", policy.Write),
		{Path: "/workspace/secret", Kind: hostfs.Dir, Access: policy.Hidden, Content: plan.Empty},
	}, Globs: []plan.Glob{{Pattern: "/**/*.toml", Access: policy.Read}}}
	j := NewFiles(p)
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
		if v, _ := j.HostPath(p, path); v.Access != want {
			t.Errorf("%s: %v, want %v", path, v.Access, want)
		}
	}
	if got := Places(p, "/h/ws/f"); !slices.Equal(got, []string{"/workspace/f", "/opt/x"}) {
		t.Errorf("places: %q", got)
	}
}
