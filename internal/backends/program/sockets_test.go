package program

import (
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// C2: where sockets that the host makes later can be reached, that is a gap, by
// whatever the broker lacks to tell them from the command's own.
func TestSocketGaps(t *testing.T) {
	none := host.Probe{Outcome: host.No, Reason: "no diagnostics", Fix: "load them"}
	granted := &policy.Origin{Source: "--socket datagrams"}
	for name, tt := range map[string]struct {
		plan        plan.Plan
		abi         int
		diagnostics host.Probe
		unbrokered  bool
		gap         string
		datagrams   bool // the broker refuses the command's datagram sockets
	}{
		"a broker":                     {abi: 7, diagnostics: host.Probe{Outcome: host.Yes}, datagrams: true},
		"a broker, host's network":     {plan: plan.Plan{Network: plan.Network{Mode: policy.NetworkHost}}, abi: 7, datagrams: true},
		"not known":                    {abi: 7, datagrams: true},
		"no diagnostics":               {abi: 7, diagnostics: none, gap: "sockets.later", datagrams: true},
		"no Landlock":                  {abi: 1, gap: "sockets.later", datagrams: true},
		"privileges":                   {plan: plan.Plan{Privileged: true}, abi: 7, gap: "sockets.later"},
		"no broker":                    {abi: 7, unbrokered: true, gap: "sockets.later", datagrams: true},
		"datagrams":                    {plan: plan.Plan{Datagrams: granted}, abi: 7, gap: "sockets.datagrams"},
		"the kernel":                   {abi: 9},
		"the kernel, no broker":        {abi: 9, unbrokered: true, diagnostics: none},
		"the kernel, with datagrams":   {plan: plan.Plan{Datagrams: granted}, abi: 9},
		"the kernel, with privileges":  {plan: plan.Plan{Privileged: true}, abi: 9},
		"the kernel, host's network":   {plan: plan.Plan{Network: plan.Network{Mode: policy.NetworkHost}}, abi: 9},
		"privileges and no broker":     {plan: plan.Plan{Privileged: true}, abi: 7, unbrokered: true, gap: "sockets.later"},
		"datagrams and no diagnostics": {plan: plan.Plan{Datagrams: granted}, abi: 7, diagnostics: none, gap: "sockets.later"},
	} {
		s := &host.Snapshot{Landlock: host.Landlock{ABI: tt.abi}, UnixDiagnostics: tt.diagnostics}
		d := &Domain{Plan: &tt.plan, Snap: s, Brokered: !tt.unbrokered}
		gaps := d.SocketGaps()
		if len(gaps) > 1 || len(gaps) == 0 != (tt.gap == "") || tt.gap != "" && (gaps[0].Rule != tt.gap || !gaps[0].Optional || gaps[0].Fix == "") {
			t.Errorf("%s: the gaps are %+v, want %s", name, gaps, tt.gap)
		}
		if got := Notified(NewGuard(&tt.plan, s, nil))&seccomp.NotifyDatagrams != 0; got != tt.datagrams {
			t.Errorf("%s: datagram sockets are refused: %v", name, got)
		}
	}
}

// C2: from Linux 7.1 on the domain opens the granted sockets, and no others.
func TestResolvedSockets(t *testing.T) {
	p := &plan.Plan{Paths: []plan.Path{
		{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read},
		{Path: "/run/granted", Source: "/run/granted", Kind: hostfs.Socket, Access: policy.Write},
		{Path: "/run/hidden", Kind: hostfs.Socket, Content: plan.Empty, Access: policy.Hidden},
		{Path: "/ws", Source: "/ws", Kind: hostfs.Dir, Access: policy.Write},
	}}
	for _, abi := range []int{8, 9} {
		d := &Domain{Plan: p, Snap: &host.Snapshot{Landlock: host.Landlock{ABI: abi}}}
		for i := range p.Paths {
			want := abi == 9 && p.Paths[i].Path == "/run/granted"
			if got := d.Rights(&p.Paths[i])&landlockabi.ResolveUnix != 0; got != want {
				t.Errorf("ABI %d: %s can be connected to: %v", abi, p.Paths[i].Path, got)
			}
		}
		if got := d.Handled(0).FS&landlockabi.ResolveUnix != 0; got != (abi == 9) || d.OfRoot()&landlockabi.ResolveUnix != 0 || d.Needed() != got {
			t.Errorf("ABI %d: sockets are held: %v, needed: %v", abi, got, d.Needed())
		}
	}
}
