package judge

import (
	"net/netip"
	"testing"
)

// N3: a rule with private lets its name lead to private addresses, and nothing else:
// not other names there, not the address by itself, nor what is nearer than a network.
func TestPrivateNames(t *testing.T) {
	j := judgeOf(t, []string{"private://reg.corp:443", "private://*.in.corp:443", "other.corp", "*:80", "*:443", "private://http://web.corp/v1/**", "http://web.corp/v2/**"},
		[]string{"no.in.corp", "http://web.corp/v1/secret"})
	for dest, want := range map[string]bool{
		"reg.corp=10.0.0.5:443": true, "reg.corp=192.168.1.1:443": true, "reg.corp=100.64.0.9:443": true, "reg.corp=[fd00::5]:443": true,
		"reg.corp=8.8.8.8:443": true, "a.in.corp=10.0.0.5:443": true, "reg.corp,other.corp=10.0.0.5:443": true, "reg.corp=[::ffff:10.0.0.5]:443": true,
		"reg.corp=10.0.0.5:22": false, "10.0.0.5:443": false, "other.corp=10.0.0.5:443": false, "in.corp=10.0.0.5:443": false, "no.in.corp=10.0.0.5:443": false,
		"reg.corp=169.254.169.254:443": false, "reg.corp=169.254.1.1:443": false, "reg.corp=127.0.0.1:443": false, "reg.corp=[::1]:443": false,
		"reg.corp=[fd00:ec2::254]:443": false, "reg.corp=100.100.100.200:443": false, "reg.corp=224.0.0.1:443": false, "reg.corp=192.0.2.1:443": false,
		"reg.corp=[64:ff9b::a00:5]:443": false, "reg.corp=[2002:a00:5::1]:443": false, "reg.corp=[::10.0.0.5]:443": false,
	} {
		d := destOf(t, dest)
		if v := j.Connect(d); v.Allowed != want {
			t.Errorf("connect %s: %+v", dest, v)
		}
		if v := j.Answer("reg.corp", d.Addr, false); len(d.Names) > 0 && d.Names[0] == "reg.corp" && d.Port == 443 && v.Allowed != want {
			t.Errorf("answer %s: %+v", dest, v)
		}
	}
	d := destOf(t, "reg.corp=10.0.0.5:443")
	for name, want := range map[string]bool{"reg.corp": true, "": true, "a.in.corp": true, "other.corp": false, "public.example": false, "no.in.corp": false, "10.0.0.5": false} {
		if v := j.Server(d, name); v.Allowed != want {
			t.Errorf("asking %s for %q: %+v", d.Addr, name, v)
		}
	}
	if j.AnyServer(d) {
		t.Error("any name may be asked for at a private address, because any public one may")
	}
	if j.Answer("other.corp", d.Addr, false).Allowed || j.Answer("reg.corp", d.Addr, true).Allowed || j.Answer("reg.corp", netip.MustParseAddr("127.0.0.1"), false).Allowed {
		t.Error("another name, or the host's own address, is among the answers")
	}
	if d.Own = true; j.Connect(d).Allowed {
		t.Error("a name led to an address of the host itself")
	}
	d = destOf(t, "web.corp=10.0.0.5:80")
	for path, want := range map[string]bool{"/v1/x": true, "/v2/x": false, "/v1/secret": false, "/": false} {
		if v := j.Request(d, "GET", "web.corp", path); v.Allowed != want {
			t.Errorf("GET %s: %+v", path, v)
		}
	}
}
