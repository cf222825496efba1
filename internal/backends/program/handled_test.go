package program

import (
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// W3: a domain handles every right to write. It leaves out reading only where the
// host's root can be read, and emptying files only where a broker does that.
func TestHandled(t *testing.T) {
	const read, truncate = landlockabi.ForRead, landlockabi.Truncate
	const write = landlockabi.WriteFile | landlockabi.RemoveDir | landlockabi.RemoveFile | landlockabi.MakeChar | landlockabi.MakeDir |
		landlockabi.MakeReg | landlockabi.MakeSock | landlockabi.MakeFifo | landlockabi.MakeBlock | landlockabi.MakeSym | landlockabi.Refer | landlockabi.IoctlDev
	for _, tt := range []struct {
		name     string
		content  plan.Content
		brokered bool
		want     uint64
	}{
		{"host's root", plan.Host, false, write | truncate},
		{"host's root, broker", plan.Host, true, write},
		{"own root", plan.Empty, false, write | truncate | read},
		{"own root, broker", plan.Empty, true, write | read},
	} {
		p := &plan.Plan{Paths: []plan.Path{{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read, Content: tt.content}}}
		d := &Domain{Plan: p, Snap: &host.Snapshot{Landlock: host.Landlock{ABI: 7}}, Brokered: tt.brokered}
		if got := d.Handled(0).FS; got != tt.want {
			t.Errorf("%s: handles %s, want %s", tt.name, landlockabi.FileRights(got), landlockabi.FileRights(tt.want))
		}
		if got := d.OfRoot(); got != tt.want&read {
			t.Errorf("%s: the root gives %s", tt.name, landlockabi.FileRights(got))
		}
	}
}
