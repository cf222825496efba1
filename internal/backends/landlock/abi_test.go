package landlock

import (
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	ll "github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/policy"
)

// The kernel refuses a rule whose rights do not fit what it is about.
func TestRightsFitTheKind(t *testing.T) {
	for _, k := range []host.Kind{hostfs.File, hostfs.Device, hostfs.Socket, hostfs.Other} {
		for _, a := range []policy.Access{policy.Hidden, policy.Read, policy.Write} {
			if rights := rightsFor(a, k); rights&^ll.OfFiles != 0 {
				t.Errorf("%v of a %v has %s", a, k, ll.FileRights(rights&^ll.OfFiles))
			}
		}
	}
	if rightsFor(policy.Hidden, hostfs.Dir) != 0 {
		t.Error("hidden gives rights")
	}
	if w := rightsFor(policy.Write, hostfs.Dir); w&(ll.MakeChar|ll.MakeBlock|ll.IoctlDev|ll.ResolveUnix) != 0 || w&rightsFor(policy.Read, hostfs.Dir) != ll.ForRead {
		t.Errorf("writing is %s", ll.FileRights(w))
	}
	if read := ll.FileRights(rightsFor(policy.Read, hostfs.Dir)); strings.ContainsAny(read, "w") || read != "execute|read_file|read_dir" {
		t.Errorf("reading is %s", read)
	}
}
