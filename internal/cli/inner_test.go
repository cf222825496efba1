package cli

import (
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/agents"
	"github.com/cloche-dev/cloche/internal/denials"
)

// N1: an agent is named as the one that a sandbox is for exactly if `cloche agent run` switches
// a sandbox of its own off.
func TestInnerSandboxOfAgents(t *testing.T) {
	for _, a := range agents.All() {
		advice := denials.WithoutNamespaces([][]string{{"bwrap"}, {"/usr/bin/" + a.Programs[0]}})
		if got := strings.Contains(advice, "cloche agent run "+a.Name+" "); got != (a.Inner != "") {
			t.Errorf("%s switches off %q, and the advice is %q", a.Name, a.Inner, advice)
		}
	}
}
