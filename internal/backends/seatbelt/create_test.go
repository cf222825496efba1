package seatbelt

import (
	"slices"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// F3: a folder that a rule has made is made before the run, and no other.
func TestCreateDirs(t *testing.T) {
	p := &plan.Plan{
		Workspace: "/w", Inside: "/w", Command: &plan.Command{Path: "/bin/true", Args: []string{"true"}, Dir: "/w"},
		Paths: []plan.Path{
			{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read},
			{Path: "/h/cache", Source: "/h/cache", Kind: hostfs.Dir, Access: policy.Write, Create: true},
			{Path: "/h/kept", Source: "/store/kept", Kind: hostfs.Dir, Access: policy.Write, Create: true},
			{Path: "/h/own", Source: "/h/own", Kind: hostfs.Dir, Content: plan.Empty, Access: policy.Hidden, Create: true},
			{Path: "/w", Source: "/w", Kind: hostfs.Dir, Access: policy.Write},
		},
	}
	l, err := (&Backend{}).Compile(p, &host.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.CreateDirs, []string{"/h/cache"}) {
		t.Errorf("the folders are %q", l.CreateDirs)
	}
}
