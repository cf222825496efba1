package judge

import (
	"net/netip"
	"testing"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// inspecting is a judge for rules of a policy, rules with inspect: false, and hosts of secrets.
func inspecting(t *testing.T, allow, deny, endToEnd, secrets []string) *Network {
	t.Helper()
	n := plan.Network{Mode: policy.NetworkUser}
	for _, a := range allow {
		n.Allow = append(n.Allow, netRuleOf(t, a))
	}
	for _, d := range deny {
		n.Deny = append(n.Deny, netRuleOf(t, d))
	}
	for _, e := range endToEnd {
		h := netRuleOf(t, e)
		h.EndToEnd = true
		n.Allow = append(n.Allow, h)
	}
	for _, s := range secrets {
		n.Inspect = append(n.Inspect, netRuleOf(t, s))
	}
	return NewNetwork(&n)
}

// N3 N14: which hosts TLS is inspected with. The most exact entry decides.
func TestInspects(t *testing.T) {
	j := inspecting(t,
		[]string{"https://*.example.com", "https://api.other.example/v1/**", "plain.example:443", "https://10.1.2.3:8443"},
		[]string{"DELETE https://denied.example"},
		[]string{"pinned.example.com:443", "*.wide.example:443", "same.example:443"},
		[]string{"https://secret.example", "https://key.wide.example", "https://same.example"})
	for _, c := range []struct {
		host string
		port int
		want bool
	}{
		{"a.example.com", 443, true}, {"A.b.example.COM.", 443, true}, {"a.example.com", 8443, false}, {"example.com", 443, false},
		{"pinned.example.com", 443, false}, {"api.other.example", 443, true}, {"other.example", 443, false}, {"plain.example", 443, false},
		{"denied.example", 443, true}, {"secret.example", 443, true}, {"secret.example", 80, false},
		{"key.wide.example", 443, true}, {"other.wide.example", 443, false}, {"same.example", 443, false},
		{"10.1.2.3", 8443, true}, {"10.2.2.3", 8443, false}, {"", 443, false},
	} {
		if got := j.Inspects(c.host, c.port); got != c.want {
			t.Errorf("%s:%d: inspected %t, want %t", c.host, c.port, got, c.want)
		}
	}
	if NewNetwork(&plan.Network{Mode: policy.NetworkHost, Inspect: []plan.HostPort{netRuleOf(t, "https://a.example")}}).Inspects("a.example", 443) {
		t.Error("a host is inspected in the mode host, in which nothing is judged")
	}
	all := judgeOf(t, []string{"https://*"}, nil)
	for _, host := range []string{"a.example", "93.184.216.34"} {
		if !all.Inspects(host, 443) {
			t.Errorf("%s is not inspected although all hosts are", host)
		}
	}
}

// N3: what Connect says about a connection to an inspected host, and about others.
func TestConnectInspected(t *testing.T) {
	j := inspecting(t,
		[]string{"https://only.example/v1/**", "https://both.example/v1/**", "both.example", "plain.example", "10.1.0.0/16", "https://named.example"},
		[]string{"POST https://plain443.example/x"}, []string{"pinned.example:443"}, []string{"https://*.example"})
	yes := func(http, inspect bool) NetDecision {
		return NetDecision{Decision: plan.Decision{Allowed: true}, HTTP: http, Inspect: inspect}
	}
	for dest, want := range map[string]NetDecision{
		"only.example=93.184.216.34:443":                yes(true, true),
		"both.example=93.184.216.34:443":                yes(false, true),
		"both.example=93.184.216.34:22":                 yes(false, false),
		"plain.example=93.184.216.34:443":               yes(false, true), // of a secret
		"pinned.example=93.184.216.34:443":              yes(false, false),
		"only.example,pinned.example=93.184.216.34:443": yes(true, true),
		"10.1.2.3:443":                                  yes(false, false),
		"only.example=93.184.216.34:80":                 {},
		"udp://only.example=93.184.216.34:443":          {},
		"udp://both.example=93.184.216.34:443":          {}, // QUIC cannot be inspected
		"udp://both.example=93.184.216.34:53":           yes(false, false),
		"icmp://both.example=93.184.216.34":             yes(false, false),
		"other.test=93.184.216.34:443":                  {},
	} {
		got := j.Connect(destOf(t, dest))
		if got.Allowed != want.Allowed || got.HTTP != want.HTTP || got.Inspect != want.Inspect {
			t.Errorf("%s: allowed %t, requests %t, inspected %t (%s %s); want %t, %t, %t", dest,
				got.Allowed, got.HTTP, got.Inspect, got.Rule, got.Reason, want.Allowed, want.HTTP, want.Inspect)
		}
	}
}

// The name in a greeting decides again, because several names share an address.
func TestServerInspected(t *testing.T) {
	j := judgeOf(t, []string{"https://api.example/v1/**", "www.example:443", "10.1.0.0/16"}, nil)
	shared := destOf(t, "api.example,www.example=93.184.216.34:443")
	for name, want := range map[string]bool{"api.example": true, "www.example": false, "API.example.": true} {
		if v := j.Server(shared, name); !v.Allowed || v.Inspect != want || v.HTTP != want {
			t.Errorf("%s: %+v, want inspected %t", name, v, want)
		}
	}
	other := destOf(t, "www.example=93.184.216.34:443")
	if v := j.Server(other, "api.example"); !v.Allowed || !v.Inspect || !v.HTTP {
		t.Errorf("a connection to www.example that asks for api.example: %+v, want it inspected", v)
	}
	if v := j.Server(Dest{Protocol: "tcp", Addr: netip.MustParseAddr("10.1.0.9"), Port: 443}, "api.example"); !v.Allowed || !v.Inspect {
		t.Errorf("a connection to an allowed address that asks for api.example: %+v, want it inspected", v)
	}
	denies := judgeOf(t, []string{"10.1.0.0/16"}, []string{"POST https://api.example"})
	byAddress := Dest{Protocol: "tcp", Addr: netip.MustParseAddr("10.1.0.9"), Port: 443}
	if v := denies.Server(byAddress, "api.example"); !v.Allowed || !v.Inspect || !v.HTTP {
		t.Errorf("a rule denies requests to api.example: %+v, want each of them judged", v)
	}
	if v := denies.Server(byAddress, "www.example"); !v.Allowed || v.Inspect || v.HTTP {
		t.Errorf("no rule is about requests to www.example: %+v, want the connection left alone", v)
	}
	for _, d := range []Dest{shared, other, {Protocol: "tcp", Addr: netip.MustParseAddr("10.1.0.9"), Port: 443}} {
		if j.AnyServer(d) {
			t.Errorf("%v: the name in the greeting is not looked at", d)
		}
	}
	if !j.AnyServer(Dest{Protocol: "tcp", Addr: netip.MustParseAddr("10.1.0.9"), Port: 22}) {
		t.Error("an allowed address at port 22, where nothing is inspected, is not free")
	}
}

// N3: requests inside TLS are judged by rules for https and by whole hosts, and plain ones are
// not judged by rules for https.
func TestRequestTLS(t *testing.T) {
	j := judgeOf(t,
		[]string{"GET,HEAD https://api.example/repos/me/**", "https://open.example", "whole.example:443", "http://web.example:443/v1/**"},
		[]string{"DELETE https://whole.example/x/**", "PUT https://open.example/admin/**"})
	for _, c := range []struct {
		method, host, path string
		tls, want          bool
	}{
		{"GET", "api.example", "/repos/me/a?b=c", true, true},
		{"GET", "api.example", "/repos/me", true, true},
		{"HEAD", "api.example:443", "/repos/me/a", true, true},
		{"POST", "api.example", "/repos/me/a", true, false},
		{"get", "api.example", "/repos/me/a", true, false},
		{"GET", "api.example", "/repos/you/a", true, false},
		{"GET", "api.example", "/repos/me/../you/a", true, false},
		{"GET", "api.example", "/repos/me/%2e%2e/you", true, false},
		{"GET", "api.example", "/repos/me/%2fyou", true, false},
		{"GET", "api.example", "/repos//me/a", true, false},
		{"GET", "api.example", "/repos/me/a", false, false},
		{"PUT", "open.example", "/any/thing", true, true},
		{"GET", "open.example", "/@scope%2fname//x", true, true}, // no rule is about its paths
		{"PUT", "open.example", "/Admin/x", true, false},
		{"PUT", "open.example", "/any", false, false},
		{"GET", "whole.example", "/x/y", true, true},
		{"delete", "whole.example", "/x/y", true, false},
		{"DELETE", "whole.example", "/y", true, true},
		{"DELETE", "whole.example", "/x/y", false, true}, // the rule is about TLS; port 443 in plain HTTP is no server's
		{"GET", "web.example", "/v1/a", false, true},
		{"GET", "web.example", "/v1/a", true, false},
		{"GET", "evil.example", "/repos/me", true, false},
	} {
		host := withoutPort(c.host)
		d := Dest{Protocol: "tcp", Names: []string{host}, Addr: netip.MustParseAddr("93.184.216.34"), Port: 443}
		ask := j.Request
		if c.tls {
			ask = j.RequestTLS
		}
		v := ask(d, c.method, c.host, c.path)
		if v.Allowed != c.want {
			t.Errorf("%s %s%s (TLS %t): allowed %t by %s %s (%s), want %t", c.method, c.host, c.path, c.tls, v.Allowed, v.Rule, v.Subject, v.Reason, c.want)
		}
	}
	// A request to another host than the connection's.
	d := Dest{Protocol: "tcp", Names: []string{"open.example"}, Addr: netip.MustParseAddr("93.184.216.34"), Port: 443}
	if v := j.RequestTLS(d, "POST", "api.example", "/repos/me/a"); v.Allowed {
		t.Errorf("a request to api.example on a connection to open.example is judged by the rules for open.example: %+v", v)
	}
}

func TestLenient(t *testing.T) {
	j := judgeOf(t, []string{"https://*.open.example", "GET https://read.open.example", "https://*.paths.example/v1/**"}, []string{"DELETE https://10.1.2.3:8443"})
	for host, want := range map[string]bool{"a.open.example": true, "read.open.example": false, "a.paths.example": false, "other.example": true, "": false, "10.1.2.3": true} {
		if got := j.Lenient(host, 443); got != want {
			t.Errorf("%q: %t, want %t", host, got, want)
		}
	}
	if j.Lenient("10.1.2.3", 8443) || j.Lenient("a.example", 8443) {
		t.Error("a rule is about the methods of requests to an address, and hosts that may lead there are not looked at")
	}
}

// D9: the fix of a request that was denied inside TLS.
func TestRequestTLSFix(t *testing.T) {
	j := judgeOf(t, []string{"https://api.example/v1/**"}, nil)
	d := Dest{Protocol: "tcp", Names: []string{"api.example"}, Port: 443}
	v := j.RequestTLS(d, "POST", "api.example", "/v2/x")
	d.Protocol = policy.HTTPS
	denial := v.Denial(plan.OpRequest, d, "POST", "/v2/x")
	if len(denial.Fix) != 1 || denial.Fix[0].Entry() != "https://api.example/v2/x" {
		t.Errorf("the fix is %v, want https://api.example/v2/x", denial.Fix)
	}
	if denial.Object() != "POST https://api.example/v2/x" {
		t.Errorf("it is about %q", denial.Object())
	}
	again := judgeOf(t, []string{"https://api.example/v1/**", denial.Fix[0].Entry()}, nil)
	d.Protocol = "tcp"
	if v := again.RequestTLS(d, "POST", "api.example", "/v2/x"); !v.Allowed {
		t.Errorf("the fix does not allow it: %+v", v)
	}
}
