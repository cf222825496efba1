package judge

import (
	"testing"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// N2: what is given while a command runs adds up, whichever came first: reading a file
// takes no writing of its folder away, and what another rule keeps in a folder that is
// given stays kept, unless it is given itself.
func TestNewFilesWith(t *testing.T) {
	p := &plan.Plan{Paths: []plan.Path{
		{Path: "/", Access: policy.Read}, {Path: "/d/secret", Access: policy.Hidden}, {Path: "/d/own", Access: policy.Hidden, Locked: true},
	}}
	line := func(path string, access policy.Access) plan.Path {
		return plan.Path{Path: path, Access: access, Origin: policy.Origin{Layer: policy.LayerGrant}}
	}
	given := []plan.Path{line("/d/f", policy.Read), line("/d/secret/k", policy.Read), line("/d", policy.Write), line("/d/own/x", policy.Write)}
	want := map[string]policy.Access{"/d/f": policy.Write, "/d/g": policy.Write, "/d/secret/k": policy.Read, "/d/secret/l": policy.Hidden,
		"/d/own/x": policy.Hidden, "/e": policy.Read}
	for range given {
		given = append(given[1:], given[0])
		for path, access := range want {
			if got := NewFilesWith(p, given).Path(path); got.Access != access {
				t.Errorf("%s is %s, want %s (%v)", path, got.Access, access, got)
			}
		}
	}
	p.Paths = append(p.Paths, given...)
	if got := NewFilesUngranted(p).Path("/d/secret/k"); got.Access != policy.Hidden || got.Origin.Layer.Granted() {
		t.Errorf("without what was granted: %v", got)
	}
}
