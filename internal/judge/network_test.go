package judge

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// netRuleOf reads a rule as a policy has it; methods stand before a space.
func netRuleOf(t testing.TB, text string) plan.HostPort {
	t.Helper()
	methods, host, ok := strings.Cut(text, " ")
	if !ok {
		methods, host = "", text
	}
	e, err := policy.ParseHost(host)
	if err != nil {
		t.Fatal(err)
	}
	h := plan.HostPort{Host: e.Host, Port: e.Port, LastPort: e.LastPort, Protocol: e.Protocol, Private: e.Private, Paths: e.Paths}
	if methods != "" {
		h.Methods = strings.Split(methods, ",")
	}
	return h
}

func judgeOf(t testing.TB, allow, deny []string) *Network {
	t.Helper()
	n := plan.Network{Mode: policy.NetworkUser}
	for _, a := range allow {
		n.Allow = append(n.Allow, netRuleOf(t, a))
	}
	for _, d := range deny {
		n.Deny = append(n.Deny, netRuleOf(t, d))
	}
	return NewNetwork(&n)
}

// destOf reads "[udp://]name,name=addr:port", "addr:port" or "name:port".
func destOf(t testing.TB, text string) Dest {
	t.Helper()
	d := Dest{Protocol: "tcp"}
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		d.Protocol, text = scheme, rest
	}
	names, addr, both := strings.Cut(text, "=")
	if !both {
		names, addr = "", text
	}
	if names != "" {
		d.Names = strings.Split(names, ",")
	}
	if ap, err := netip.ParseAddrPort(addr); err == nil {
		d.Addr, d.Port = ap.Addr(), int(ap.Port())
	} else if a, err := netip.ParseAddr(addr); err == nil {
		d.Addr = a
	} else {
		t.Fatalf("%q: %v", text, err)
	}
	return d
}

// N3: who may be connected to. Each line is a destination and the rule that
// decides; "+" before it means allowed.
func TestConnect(t *testing.T) {
	tests := []struct {
		name        string
		allow, deny []string
		want        map[string]string
	}{
		{"empty list", nil, nil, map[string]string{
			"a.example=93.184.216.34:443": "network.allow", "93.184.216.34:443": "network.allow", "udp://93.184.216.34:53": "network.allow",
			"127.0.0.1:80": "network.private", "10.0.0.1:80": "network.private",
		}},
		{"name", []string{"example.com"}, nil, map[string]string{
			"example.com=93.184.216.34:443": "+network.allow", "example.com=93.184.216.34:1": "+network.allow", "udp://example.com=93.184.216.34:443": "+network.allow",
			"icmp://example.com=93.184.216.34": "+network.allow", "EXAMPLE.com.=93.184.216.34:443": "+network.allow",
			"www.example.com=93.184.216.34:443": "network.allow", "evilexample.com=93.184.216.34:443": "network.allow",
			"example.com.evil=93.184.216.34:443": "network.allow", "93.184.216.34:443": "network.allow",
			"evil.example,example.com=93.184.216.34:443": "+network.allow", // whoever asked for the allowed name may use it
		}},
		{"wildcard", []string{"*.example.com"}, nil, map[string]string{
			"a.example.com=93.184.216.34:443": "+network.allow", "a.b.example.com=93.184.216.34:443": "+network.allow", "A.Example.Com=93.184.216.34:443": "+network.allow",
			"example.com=93.184.216.34:443": "network.allow", "evilexample.com=93.184.216.34:443": "network.allow", ".example.com=93.184.216.34:443": "network.allow",
			"a.example.com.evil.org=93.184.216.34:443": "network.allow", "a\x00.example.com=93.184.216.34:443": "network.allow",
			"b\xc3\xbccher.example.com=93.184.216.34:443": "network.allow", "xn--bcher-kva.example.com=93.184.216.34:443": "+network.allow",
			"a..example.com=93.184.216.34:443": "network.allow",
		}},
		{"every public host", []string{"*"}, nil, map[string]string{
			"a.example=93.184.216.34:443": "+network.allow", "93.184.216.34:443": "+network.allow", "[2606:2800:220:1::1]:443": "+network.allow", "icmp://8.8.8.8": "+network.allow",
			// Whatever name leads there: rebinding, metadata services, the machine itself.
			"a.example=10.0.0.1:443": "network.private", "a.example=127.0.0.1:443": "network.private", "a.example=169.254.169.254:80": "network.private",
			"[fd00:ec2::254]:80": "network.private", "100.100.100.200:80": "network.private", "168.63.129.16:80": "network.private", "100.64.0.1:80": "network.private",
			"[::ffff:10.0.0.1]:80": "network.private", "[::ffff:169.254.169.254]:80": "network.private", "[64:ff9b::a9fe:a9fe]:80": "network.private", "[2002:a00:1::1]:80": "network.private",
			"[::10.0.0.1]:80": "network.private", "[::]:80": "network.private", "0.0.0.0:80": "network.private", "[::1]:80": "network.private", "[::ffff:127.0.0.1]:80": "network.private",
			"[fe80::1%eth0]:80": "network.private", "224.0.0.1:80": "network.private", "255.255.255.255:80": "network.private", "[ff02::1]:80": "network.private",
			"192.0.2.1:80": "network.private", "198.18.0.1:80": "network.private", "240.0.0.1:80": "network.private", "[2001:db8::1]:80": "network.private", "[2001::1]:80": "network.private",
			"[64:ff9b::808:808]:80": "+network.allow", "[2002:808:808::1]:80": "+network.allow", "[4000::1]:80": "network.private", "[64:ff9b:1::808:808]:80": "network.private",
		}},
		{"an address rule opens what is private", []string{"10.1.0.0/16:5432", "*.corp", "[fd00::/8]:443", "169.254.169.254:80"}, nil, map[string]string{
			"10.1.2.3:5432": "+network.allow", "db.corp=10.1.2.3:5432": "+network.allow", "x.evil=10.1.2.3:5432": "+network.allow", "[::ffff:10.1.2.3]:5432": "+network.allow",
			"db.corp=10.1.2.3:80": "network.private", "db.corp=10.2.2.3:5432": "network.private", "[64:ff9b::a01:203]:5432": "network.private",
			"[fd12::1]:443": "+network.allow", "[fd12::1]:80": "network.private", "169.254.169.254:80": "+network.allow", "169.254.169.253:80": "network.private",
			"icmp://10.1.2.3": "network.private",
		}},
		{"loopback never", []string{"0.0.0.0/0", "::/0"}, nil, map[string]string{
			"10.0.0.1:1": "+network.allow", "[fe80::1]:1": "+network.allow", "8.8.8.8:1": "+network.allow", "a.example=8.8.8.8:1": "+network.allow",
			"127.0.0.1:1": "network.private", "127.9.9.9:1": "network.private", "0.0.0.0:1": "network.private", "[::1]:1": "network.private", "[::]:1": "network.private",
			"[::ffff:127.0.0.1]:1": "network.private", "[64:ff9b::7f00:1]:1": "network.private", "[2002:7f00:1::]:1": "network.private", "[::127.0.0.1]:1": "network.private",
		}},
		{"deny beats allow", []string{"*", "10.0.0.0/8", "good.evil.com"}, []string{"*.evil.com", "10.9.0.0/16", "203.0.114.0/24", "udp://*:443", "*:25", "only22.com:22"}, map[string]string{
			"a.evil.com=93.184.216.34:443": "network.deny", "good.evil.com=93.184.216.34:443": "network.deny", "A.EVIL.com.=93.184.216.34:443": "network.deny", "evil.com=93.184.216.34:443": "+network.allow",
			"10.8.0.1:1": "+network.allow", "10.9.0.1:1": "network.deny", "[::ffff:10.9.0.1]:1": "network.deny", "x.com=203.0.114.9:443": "network.deny", "[64:ff9b::cb00:7209]:443": "network.deny",
			"a.evil.com=10.8.0.1:1": "network.deny", "a.evil.com,ok.com=10.8.0.1:1": "+network.allow",
			"udp://x.com=93.184.216.34:443": "network.deny", "x.com=93.184.216.34:443": "+network.allow", "x.com=93.184.216.34:25": "network.deny", "10.8.0.1:25": "network.deny",
			"only22.com=93.184.216.34:22": "network.deny", "only22.com=93.184.216.34:80": "+network.allow", "only22.com,other.com=93.184.216.34:22": "+network.allow",
		}},
		{"ports and protocols", []string{"a.com:443", "b.com:8000-8010", "tcp://c.com", "udp://d.com:53", "icmp://e.com"}, nil, map[string]string{
			"a.com=8.8.8.8:443": "+network.allow", "udp://a.com=8.8.8.8:443": "+network.allow", "a.com=8.8.8.8:444": "network.allow", "icmp://a.com=8.8.8.8": "network.allow",
			"b.com=8.8.8.8:7999": "network.allow", "b.com=8.8.8.8:8000": "+network.allow", "b.com=8.8.8.8:8010": "+network.allow", "b.com=8.8.8.8:8011": "network.allow",
			"c.com=8.8.8.8:1": "+network.allow", "udp://c.com=8.8.8.8:1": "network.allow", "icmp://c.com=8.8.8.8": "network.allow",
			"udp://d.com=8.8.8.8:53": "+network.allow", "d.com=8.8.8.8:53": "network.allow", "icmp://e.com=8.8.8.8": "+network.allow", "e.com=8.8.8.8:1": "network.allow",
		}},
		{"odd spellings are no names", []string{"*"}, nil, map[string]string{
			"127.1=8.8.8.8:80": "network.allow", "0x7f.1=8.8.8.8:80": "network.allow", "2130706433=8.8.8.8:80": "network.allow", "0177.0.0.1=8.8.8.8:80": "network.allow",
			"1.2.3.4=8.8.8.8:80": "network.allow", "a b=8.8.8.8:80": "network.allow",
		}},
	}
	for _, tt := range tests {
		j := judgeOf(t, tt.allow, tt.deny)
		for text, want := range tt.want {
			v := j.Connect(destOf(t, text))
			if v.Allowed != strings.HasPrefix(want, "+") || v.Rule != strings.TrimPrefix(want, "+") {
				t.Errorf("%s: %s: allowed %v by %s (%s), want %s", tt.name, text, v.Allowed, v.Rule, v.Reason, want)
			}
			if !v.Allowed && v.Rule != RuleNetworkDeny && v.Reason == "" {
				t.Errorf("%s: %s: no reason", tt.name, text)
			}
		}
	}
}

// The addresses of the host count as private, whatever they are.
func TestConnectOwn(t *testing.T) {
	j := judgeOf(t, []string{"*"}, nil)
	d := destOf(t, "a.example=93.184.216.34:443")
	d.Own = true
	if v := j.Connect(d); v.Allowed || v.Rule != RuleNetworkPrivate {
		t.Errorf("got %+v", v)
	}
	if v := j.Answer("a.example", d.Addr, true); v.Allowed {
		t.Errorf("answer: got %+v", v)
	}
	if v := judgeOf(t, []string{"93.184.216.34"}, nil).Connect(d); !v.Allowed || !v.ByAddress {
		t.Errorf("with a rule: got %+v", v)
	}
}

// C3: modes other than user judge nothing.
func TestNetModes(t *testing.T) {
	d := destOf(t, "a.example=93.184.216.34:443")
	for mode, want := range map[policy.NetworkMode]bool{policy.NetworkNone: false, policy.NetworkLoopback: false, policy.NetworkHost: true} {
		j := NewNetwork(&plan.Network{Mode: mode, Allow: []plan.HostPort{{Host: "*"}}})
		for what, v := range map[string]NetDecision{"name": j.Name("a.example"), "answer": j.Answer("a.example", d.Addr, false), "connect": j.Connect(d), "server": j.Server(d, "b"), "request": j.Request(d, "GET", "b", "/")} {
			if v.Allowed != want || v.Rule != RuleNetworkMode || v.Subject != mode.String() {
				t.Errorf("%s: %s: got %+v", mode, what, v)
			}
		}
	}
}

// N3: no look-up that leads nowhere.
func TestName(t *testing.T) {
	j := judgeOf(t, []string{"a.com:443", "*.b.com", "udp://c.com:53", "10.0.0.0/8", "http://d.com/x"}, []string{"x.b.com", "y.b.com:80", "http://z.b.com/x"})
	for name, want := range map[string]bool{
		"a.com": true, "A.COM.": true, "q.b.com": true, "b.com": false, "x.b.com": false, "y.b.com": true, "z.b.com": true, "c.com": true, "d.com": true,
		"other.com": false, "evilb.com": false, "data.exfil.example": false, "10.0.0.1": false, "": false, ".": false, "a.com\x00.b.com": false,
		strings.Repeat("a", 64) + ".b.com": false, "_dmarc.b.com": true,
		"_http._tcp.a.com": true, "_443._https.a.com": true, "_http.x.a.com": false, "_tcp.other.com": false, "_ldap._tcp.x.b.com": false, "_": false, "_.": false, "x._tcp.a.com": false,
	} {
		if v := j.Name(name); v.Allowed != want {
			t.Errorf("%q: got %+v", name, v)
		}
	}
	if v := judgeOf(t, []string{"*"}, []string{"*"}).Name("a.com"); v.Allowed || v.Rule != RuleNetworkDeny {
		t.Errorf("got %+v", v)
	}
	if v := judgeOf(t, []string{"0.0.0.0/0"}, nil).Name("a.com"); !v.Allowed {
		t.Errorf("got %+v", v)
	}
}

// N3: what a name may be answered with.
func TestAnswer(t *testing.T) {
	j := judgeOf(t, []string{"a.com", "10.1.0.0/16:5432", "0.0.0.0/0:1"}, nil)
	for text, want := range map[string]bool{"8.8.8.8": true, "2606:4700::1": true, "10.1.2.3": true, "127.0.0.1": false, "::1": false, "fd00::1": false} {
		if v := j.Answer("a.com", netip.MustParseAddr(text), false); v.Allowed != want {
			t.Errorf("%s: got %+v", text, v)
		}
	}
}

// N3: the name in TLS or in a Host is judged, too.
func TestServer(t *testing.T) {
	j := judgeOf(t, []string{"good.com:443", "*.cdn.com:443", "10.0.0.0/8", "star.org"}, []string{"bad.cdn.com", "no.corp"})
	for _, tt := range []struct {
		dest, name string
		want       bool
	}{
		{"good.com=8.8.8.8:443", "good.com", true},
		{"good.com=8.8.8.8:443", "GOOD.com.", true},
		{"good.com=8.8.8.8:443", "", true},
		{"good.com=8.8.8.8:443", "evil.com", false},
		{"good.com=8.8.8.8:443", "a.cdn.com", true}, // allowed at that port by itself
		{"good.com=8.8.8.8:443", "bad.cdn.com", false},
		{"good.com=8.8.8.8:443", "8.8.8.8", false}, // no rule allows the address
		{"good.com=8.8.8.8:443", "9.9.9.9", false},
		{"good.com=8.8.8.8:443", "good.com\x00.evil.com", false},
		{"good.com=8.8.8.8:443", "127.1", false},
		{"star.org=8.8.8.8:80", "good.com", false}, // only at 443
		{"evil.com=8.8.8.8:443", "good.com", false},
		{"10.1.2.3:80", "anything.at.all", true},
		{"10.1.2.3:80", "10.1.2.3", true},
		{"10.1.2.3:80", "no.corp", false},
	} {
		if v := j.Server(destOf(t, tt.dest), tt.name); v.Allowed != tt.want {
			t.Errorf("%s asks for %q: got %+v", tt.dest, tt.name, v)
		}
	}
	every := judgeOf(t, []string{"*"}, []string{"evil.com"})
	for name, want := range map[string]bool{"any.com": true, "evil.com": false, "8.8.8.8": true, "[8.8.8.8]": true, "9.9.9.9": false, "127.0.0.1": false} {
		if v := every.Server(destOf(t, "8.8.8.8:443"), name); v.Allowed != want {
			t.Errorf("%q: got %+v", name, v)
		}
	}
}

// N3: requests of plain HTTP.
func TestRequest(t *testing.T) {
	j := judgeOf(t, []string{"GET,HEAD http://api.com/v1/**", "POST http://api.com/v1/jobs/*", "http://files.com:8080", "plain.com", "GET http://10.0.0.5:80", "*:81"},
		[]string{"http://plain.com/admin/**", "DELETE http://files.com:8080"})
	for _, tt := range []struct {
		dest, request string
		want          bool
	}{
		{"api.com=8.8.8.8:80", "GET api.com /v1", true},
		{"api.com=8.8.8.8:80", "GET api.com:80 /v1/x/y?q=/../z", true},
		{"api.com=8.8.8.8:80", "GET api.com /v2", false},
		{"api.com=8.8.8.8:80", "GET api.com /v1x", false},
		{"api.com=8.8.8.8:80", "get api.com /v1", false},
		{"api.com=8.8.8.8:80", "PUT api.com /v1", false},
		{"api.com=8.8.8.8:80", "POST api.com /v1/jobs/7", true},
		{"api.com=8.8.8.8:80", "POST api.com /v1/jobs/7/x", false},
		{"api.com=8.8.8.8:80", "GET API.com. /v1/%61", true},
		{"api.com=8.8.8.8:80", "GET api.com /v1/a%20b", true},
		{"api.com=8.8.8.8:80", "GET evil.com /v1", false},
		{"api.com=8.8.8.8:80", "GET  /v1", false},
		{"api.com=8.8.8.8:80", "GET 8.8.8.8 /v1", false},
		// What servers read in several ways.
		{"api.com=8.8.8.8:80", "GET api.com /v1/../admin", false},
		{"api.com=8.8.8.8:80", "GET api.com /v1/./x", false},
		{"api.com=8.8.8.8:80", "GET api.com /v1/%2e%2e/admin", false},
		{"api.com=8.8.8.8:80", "GET api.com /v1/..%2fadmin", false},
		{"api.com=8.8.8.8:80", "GET api.com /v1/..%5cadmin", false},
		{"api.com=8.8.8.8:80", "GET api.com /v1/..;/admin", false},
		{"api.com=8.8.8.8:80", "GET api.com /v1/..;a=b/admin", false},
		{"api.com=8.8.8.8:80", `GET api.com /v1\..\admin`, false},
		{"api.com=8.8.8.8:80", "GET api.com /v1//x", false},
		{"api.com=8.8.8.8:80", "GET api.com //v1/x", false},
		{"api.com=8.8.8.8:80", "GET api.com /v1/%252e%252e/admin", false},
		{"api.com=8.8.8.8:80", "GET api.com /v1/%c0%ae%c0%ae/x", false},
		{"api.com=8.8.8.8:80", "GET api.com /v1/%00", false},
		{"api.com=8.8.8.8:80", "GET api.com /v1/%zz", false},
		{"api.com=8.8.8.8:80", "GET api.com /v1/x#y", false},
		{"api.com=8.8.8.8:80", "GET api.com v1/x", false},
		{"api.com=8.8.8.8:80", "GET api.com *", false},
		{"api.com=8.8.8.8:80", "GET api.com /v1/x;p=1", true},
		{"api.com=8.8.8.8:80", "GET api.com /v1;p=1/x", false}, // one reading is allowed, the other is not
		{"files.com=8.8.8.8:8080", "OPTIONS files.com *", true},
		{"files.com=8.8.8.8:8080", "PUT files.com /any/path", true},
		{"files.com=8.8.8.8:8080", "DELETE files.com /any/path", false},
		{"files.com=8.8.8.8:8080", "delete files.com /any/path", false},
		// Denied paths, in every spelling.
		{"plain.com=8.8.8.8:80", "POST plain.com /x", true},
		{"plain.com=8.8.8.8:80", "GET plain.com /admin", false},
		{"plain.com=8.8.8.8:80", "GET plain.com /admin/", false},
		{"plain.com=8.8.8.8:80", "GET plain.com /ADMIN/x", false},
		{"plain.com=8.8.8.8:80", "GET plain.com /%61dmin/x", false},
		{"plain.com=8.8.8.8:80", "GET plain.com /admin;x/y", false},
		{"plain.com=8.8.8.8:80", "GET plain.com //admin/x", false},
		{"plain.com=8.8.8.8:80", "GET plain.com /x/../admin/x", false},
		{"plain.com=8.8.8.8:80", "GET plain.com /administrator", true},
		// A rule for an address is about the address; names open nothing that is private.
		{"10.0.0.5:80", "GET any.name /x", true},
		{"10.0.0.5:80", "POST any.name /x", false},
		{"10.0.0.5:80", "POST plain.com /x", false},
	} {
		f := strings.Split(tt.request, " ")
		if v := j.Request(destOf(t, tt.dest), f[0], f[1], f[2]); v.Allowed != tt.want {
			t.Errorf("%s: %s: got %+v", tt.dest, tt.request, v)
		}
	}
}

// N3: which connections have to be read request by request.
func TestNeedsHTTP(t *testing.T) {
	j := judgeOf(t, []string{"http://a.com/v1", "b.com", "GET 10.0.0.5:80", "10.0.0.6", "both.com", "http://both.com/x"}, []string{"http://b.com/admin"})
	for dest, want := range map[string]bool{
		"a.com=8.8.8.8:80": true, "b.com=8.8.8.8:80": true, "b.com=8.8.8.8:443": false, "10.0.0.5:80": true, "10.0.0.6:443": false,
		"both.com=8.8.8.8:80": false, "both.com,a.com=8.8.8.8:80": true,
		"10.0.0.6:80": true, // a Host of b.com could follow
	} {
		if v := j.Connect(destOf(t, dest)); !v.Allowed || v.HTTP != want {
			t.Errorf("%s: got %+v", dest, v)
		}
	}
	if v := j.Server(destOf(t, "both.com=8.8.8.8:80"), "a.com"); !v.Allowed || !v.HTTP {
		t.Errorf("the Host of a name whose requests are judged: got %+v", v)
	}
	if v := j.Connect(destOf(t, "a.com=8.8.8.8:443")); v.Allowed {
		t.Errorf("a rule for plain HTTP allows another port: %+v", v)
	}
}

// A proxy judges a name before it is looked up, and again with the address.
func TestConnectBeforeResolving(t *testing.T) {
	j := judgeOf(t, []string{"a.com:443", "10.0.0.0/8"}, []string{"b.com"})
	for _, tt := range []struct {
		name string
		port int
		want bool
	}{{"a.com", 443, true}, {"a.com", 80, false}, {"b.com", 443, false}, {"10.0.0.1", 443, false}} {
		if v := j.Connect(Dest{Protocol: "tcp", Names: []string{tt.name}, Port: tt.port}); v.Allowed != tt.want {
			t.Errorf("%s:%d: got %+v", tt.name, tt.port, v)
		}
	}
	if v := j.Connect(Dest{Protocol: "tcp", Port: 443}); v.Allowed {
		t.Errorf("nothing: got %+v", v)
	}
}

// The verdict names the rule as a policy has it.
func TestNetDecision(t *testing.T) {
	n := plan.Network{Mode: policy.NetworkUser, Allow: []plan.HostPort{{Host: "a.com", Port: 80, Protocol: "tcp", Methods: []string{"GET"}, Paths: []string{"/v1/**"}, Reason: "why",
		Origin: policy.Origin{Layer: policy.LayerUser, Source: "f", Line: 3}}}}
	v := NewNetwork(&n).Connect(destOf(t, "A.com=8.8.8.8:80"))
	if !v.Allowed || v.Subject != "GET http://a.com/v1/**" || v.Reason != "why" || v.Origin.Line != 3 || v.Name != "a.com" || v.ByAddress {
		t.Errorf("got %+v", v)
	}
}

func TestMatchPath(t *testing.T) {
	for pattern, cases := range map[string]map[string]bool{
		"/**":        {"/": true, "/a": true, "/a/b": true},
		"/":          {"/": true, "/a": false},
		"/*":         {"/a": true, "/": true, "/a/b": false},
		"/a/*/c":     {"/a/b/c": true, "/a/c": false, "/a/b/b/c": false},
		"/a/**/c":    {"/a/c": true, "/a/b/c": true, "/a/b/b/c": true, "/a/b/d": false, "/c": false},
		"/**/x/**/y": {"/x/y": true, "/x/x/a/y": true, "/y/x": false, "/x/a/y/b": false},
		"/v*.json":   {"/v1.json": true, "/v.json": true, "/v1.jsonx": false, "/v/1.json": false},
		"/*a*b*":     {"/xaxbx": true, "/ab": true, "/ba": false},
	} {
		for path, want := range cases {
			if got := matchPath(pattern, path); got != want {
				t.Errorf("%s on %s is %v", pattern, path, got)
			}
		}
	}
}
