package judge

import (
	"net/netip"
	"testing"

	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// N1: an address that a mode has no way to is recorded with the option that opens it,
// and with none where none does.
func TestUnreachable(t *testing.T) {
	n := plan.Network{Mode: policy.NetworkNone}
	for _, c := range []struct{ protocol, to, rule, grant string }{
		{"tcp", "93.184.216.34:443", RuleNetworkMode, "--allow 93.184.216.34:443"},
		{"udp", "93.184.216.34:443", RuleNetworkMode, "--allow udp://93.184.216.34:443"},
		{"icmp", "93.184.216.34:0", RuleNetworkMode, "--allow icmp://93.184.216.34"},
		{"tcp", "[2001:db8::1]:80", RuleNetworkMode, "--allow '[2001:db8::1]:80'"},
		{"tcp", "10.0.0.1:80", RuleNetworkMode, "--allow 10.0.0.1:80"},
		{"udp", "10.0.0.1:53", RuleNetworkMode, ""},  // the name that is asked for is not known
		{"udp", "224.0.0.1:80", RuleNetworkMode, ""}, // no packet of a sandbox goes there
		{"udp", "93.184.216.34:0", RuleNetworkMode, ""},
		{"tcp", "127.0.0.1:8080", RuleNetworkPrivate, "--forward 8080"},
		{"tcp", "[::1]:8080", RuleNetworkPrivate, "--forward 8080"},
	} {
		d := Unreachable(&n, c.protocol, netip.MustParseAddrPort(c.to))
		if d.Op != plan.OpConnect || d.Rule != c.rule || runoption.Text(d.Fix...) != c.grant {
			t.Errorf("%s %s: rule %s, option %q, want %s, %q", c.protocol, c.to, d.Rule, runoption.Text(d.Fix...), c.rule, c.grant)
		}
	}
}
