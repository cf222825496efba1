package bwrap_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/bwrap"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// L5: the network namespace is handed over by every launch whose network has to be
// served, with Landlock or without, and by no other.
func TestNetworkIsHandedOver(t *testing.T) {
	if _, err := initprog.Binary(); err != nil {
		if runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64" {
			t.Fatal(err)
		}
		t.Skip(err) // there is no init for this architecture
	}
	port := []plan.Port{{Address: "127.0.0.1", Host: 1, Inside: 1, Protocol: "tcp"}}
	for _, abi := range []int{0, 7} {
		for name, c := range map[string]struct {
			network plan.Network
			want    bool
		}{
			"none":      {plan.Network{Mode: policy.NetworkNone}, false},
			"host":      {plan.Network{Mode: policy.NetworkHost}, false},
			"user":      {plan.Network{Mode: policy.NetworkUser, Link: policy.LinkTUN}, true},
			"published": {plan.Network{Mode: policy.NetworkNone, Publish: port}, true},
			"forwarded": {plan.Network{Mode: policy.NetworkLoopback, Forward: port}, true},
		} {
			s := &host.Snapshot{OS: "linux", Arch: "amd64", UID: 1000, GID: 1000, Landlock: host.Landlock{ABI: abi}}
			p := &plan.Plan{Command: &plan.Command{Path: "/bin/true", Args: []string{"true"}, Dir: "/"}, Network: c.network}
			l, err := bwrap.New(bwrap.Config{}, nil).Compile(p, s)
			if err != nil {
				t.Fatal(err)
			}
			has := slices.ContainsFunc(l.Files, func(f backend.File) bool { return f.Kind == builtin.NetworkHandover })
			if l.Network != c.want || has != c.want {
				t.Errorf("ABI %d, %s: the network is handed over: %v, %v; want %v", abi, name, l.Network, has, c.want)
			}
		}
	}
}
