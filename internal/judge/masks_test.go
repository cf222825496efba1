package judge

import (
	"slices"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// N1: which paths are hidden by lines, through the plan's own links too, and what
// the host has there.
func TestMasks(t *testing.T) {
	p := plan.Plan{Workspace: "/data/ws", Inside: "/home/u/ws", Paths: []plan.Path{
		{Path: "/", Kind: hostfs.Dir, Access: policy.Hidden, Content: plan.Empty},
		{Path: "/usr", Source: "/usr", Kind: hostfs.Dir, Access: policy.Read},
		{Path: "/bin", Content: plan.Link, Target: "usr/bin", Access: policy.Read},
		{Path: "/home/u/ws", Source: "/data/ws", Kind: hostfs.Dir, Access: policy.Write},
		{Path: "/home/u/ws/closed", Kind: hostfs.Dir, Access: policy.Hidden, Content: plan.Empty},
		{Path: "/home/u/ws/closed/open", Source: "/data/ws/closed/open", Access: policy.Read},
		{Path: "/home/u/.aws", Content: plan.Link, Target: "ws/closed", Access: policy.Read},
		{Path: "/tmp", Kind: hostfs.Dir, Access: policy.Write, Content: plan.Empty},
		{Path: "/tmp/x", Kind: hostfs.Dir, Access: policy.Hidden, Content: plan.Empty},
		{Path: "/srv", Source: "/data/srv", Kind: hostfs.Dir, Access: policy.Read, Content: plan.Empty}, // its entries are lines
		{Path: "/srv/closed", Kind: hostfs.Dir, Access: policy.Hidden, Content: plan.Empty},
	}}
	m := NewMasks(&p)
	for name, want := range map[string]string{
		"/usr/lib/x": "", "/bin/sh": "", "/home/u/ws/a": "", "/tmp/a": "", "/home/u/ws/closed/open": "",
		"/home/u": "", "/": "", // there because of what is in them
		"/home/u/ws/closed":   "", // the same
		"/home/u/ws/closed/f": "/home/u/ws/closed/f",
		"/home/u/.aws/f":      "/home/u/ws/closed/f",
		"/home/v/x":           "/home/v/x",
		"/etc/passwd":         "/etc/passwd",
		"/tmp/x/y":            "/tmp/x/y",
	} {
		v, real, hidden := m.Path(name)
		if hidden != (want != "") || hidden && (real != want || v.Rule != "paths.hide") {
			t.Errorf("%s: %v %s %+v, want %q", name, hidden, real, v, want)
		}
	}
	for name, want := range map[string][]string{
		"/home/u/ws/closed/f": {"/data/ws/closed/f"}, // the workspace, which is elsewhere inside
		"/etc/passwd":         {"/etc/passwd"},
		"/tmp/x/y":            nil,
		"/srv/closed/f":       {"/data/srv/closed/f", "/srv/closed/f"}, // a bind covers the host's own
		"/srv/f":              {"/data/srv/f"},                         // which nothing hides
	} {
		if got := m.Covered(name); !slices.Equal(got, want) {
			t.Errorf("%s covers %q, want %q", name, got, want)
		}
	}
	if !m.Writable("/home/u/ws/a") || m.Writable("/usr/x") {
		t.Error("what can be written is wrong")
	}
}
