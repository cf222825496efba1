package resolve

import (
	"testing"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// F7: the memory that a file which is not trusted gives a run is no more than the
// default on this machine.
func TestUntrustedMemory(t *testing.T) {
	s := machine()
	s.MemoryTotal = 8 << 30
	for _, c := range []struct {
		memory    int64
		untrusted bool
		want      int64
		notices   int
	}{
		{1 << 30, true, 1 << 30, 0}, {7 << 30, true, 6 << 30, 1}, {7 << 30, false, 7 << 30, 0}, {0, false, 6 << 30, 0},
	} {
		p := workspacePolicy()
		p.Limits.Memory = c.memory
		if c.memory != 0 {
			p.Limits.Origin = map[string]policy.Origin{"memory": {Layer: policy.LayerProject, Source: "test", Untrusted: c.untrusted}}
		}
		got := mustResolve(t, p, Request{Name: "true"}, s)
		notices := 0
		for _, n := range got.Notices {
			if n.Origin.Untrusted {
				notices++
			}
		}
		if v := got.Limit(plan.LimitMemory); v != c.want || notices != c.notices {
			t.Errorf("%+v: %d, %d notices", c, v, notices)
		}
	}
}
