package landlock

import (
	"slices"
	"testing"

	"github.com/cloche-dev/cloche/plan"
)

// L5: without a network namespace there are no ports, which is said of each.
func TestPortsAreGaps(t *testing.T) {
	p := base()
	p.Network.Publish = []plan.Port{{Host: 8080, Inside: 80}}
	p.Network.Forward = []plan.Port{{Host: 5432, Inside: 5432}}
	got := gapNames(downgrade(p, machine(7)))
	for _, want := range []string{"network.publish 8080:80", "network.forward 5432"} {
		if !slices.Contains(got, want) {
			t.Errorf("the gaps are %q, without %s", got, want)
		}
	}
}
