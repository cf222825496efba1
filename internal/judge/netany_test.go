package judge

import (
	"net/netip"
	"testing"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// N3: names need not be compared only where every name would be allowed.
func TestAnyServer(t *testing.T) {
	every, name, addr := plan.HostPort{Host: "*"}, plan.HostPort{Host: "good.example"}, plan.HostPort{Host: "93.184.216.0/24"}
	for _, test := range []struct {
		name        string
		allow, deny []plan.HostPort
		want        bool
	}{
		{"nothing", nil, nil, false},
		{"a name", []plan.HostPort{name}, nil, false},
		{"every host", []plan.HostPort{every}, nil, true},
		{"every host at another port", []plan.HostPort{name, {Host: "*", Port: 80}}, nil, false},
		{"every host, by requests", []plan.HostPort{{Host: "*", Methods: []string{"GET"}}}, nil, false},
		{"an address", []plan.HostPort{addr}, nil, true},
		{"every host but one", []plan.HostPort{every}, []plan.HostPort{{Host: "evil.example"}}, false},
		{"an address, without a name", []plan.HostPort{addr}, []plan.HostPort{{Host: "*.evil.example"}}, false},
		{"every host but one at another port", []plan.HostPort{every}, []plan.HostPort{{Host: "evil.example", Port: 25}}, true},
		{"every host but an address", []plan.HostPort{every}, []plan.HostPort{{Host: "198.51.100.0/24"}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := plan.Network{Mode: policy.NetworkUser, Allow: test.allow, Deny: test.deny}
			d := Dest{Protocol: "tcp", Names: []string{"good.example"}, Addr: netip.MustParseAddr("93.184.216.34"), Port: 443}
			if got := NewNetwork(&n).AnyServer(d); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
