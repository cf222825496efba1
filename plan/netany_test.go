package plan

import (
	"net/netip"
	"testing"

	"github.com/cloche-dev/cloche/policy"
)

// N3: names need not be compared only where every name would be allowed.
func TestAnyServer(t *testing.T) {
	every, name, addr := HostPort{Host: "*"}, HostPort{Host: "good.example"}, HostPort{Host: "93.184.216.0/24"}
	for _, test := range []struct {
		name        string
		allow, deny []HostPort
		want        bool
	}{
		{"nothing", nil, nil, false},
		{"a name", []HostPort{name}, nil, false},
		{"every host", []HostPort{every}, nil, true},
		{"every host at another port", []HostPort{name, {Host: "*", Port: 80}}, nil, false},
		{"every host, by requests", []HostPort{{Host: "*", Methods: []string{"GET"}}}, nil, false},
		{"an address", []HostPort{addr}, nil, true},
		{"every host but one", []HostPort{every}, []HostPort{{Host: "evil.example"}}, false},
		{"an address, without a name", []HostPort{addr}, []HostPort{{Host: "*.evil.example"}}, false},
		{"every host but one at another port", []HostPort{every}, []HostPort{{Host: "evil.example", Port: 25}}, true},
		{"every host but an address", []HostPort{every}, []HostPort{{Host: "198.51.100.0/24"}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := Network{Mode: policy.NetworkUser, Allow: test.allow, Deny: test.deny}
			d := Dest{Protocol: "tcp", Names: []string{"good.example"}, Addr: netip.MustParseAddr("93.184.216.34"), Port: 443}
			if got := n.Judge().AnyServer(d); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
