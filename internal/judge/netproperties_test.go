package judge

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// hostile draws the pieces that names and addresses are attacked with.
func hostile() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`(a|b|evil|good|xn--bcher-kva)(\.(com|example\.com|good\.com)){1,2}\.?`),
		rapid.SampledFrom([]string{"good.com", "evilgood.com", "good.com.evil.com", "x.good.com", "GOOD.COM", "good.com.", "good.com..", "127.1", "0x7f.1", "localhost", "good.com\x00", "\xffgood.com", "*", "*.good.com", ""}),
		rapid.String(),
	)
}

func hostileAddr() *rapid.Generator[netip.Addr] {
	return rapid.OneOf(
		rapid.Custom(func(t *rapid.T) netip.Addr {
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4")))
		}),
		rapid.Custom(func(t *rapid.T) netip.Addr {
			return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6")))
		}),
		rapid.Custom(func(t *rapid.T) netip.Addr {
			v4 := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "inner")
			head := rapid.SampledFrom([]string{"::ffff:0.0.0.0", "64:ff9b::", "::", "::ffff:0:0:0", "2002::"}).Draw(t, "head")
			b := netip.MustParseAddr(head).As16()
			copy(b[12:], v4)
			if b[0] == 0x20 {
				copy(b[2:6], v4)
			}
			return netip.AddrFrom16(b)
		}),
		rapid.SampledFrom([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fe80::1%x")}),
	)
}

// N3: rules for every destination, whatever the names and the address.
func TestConnectProperties(t *testing.T) {
	rules := []string{"good.com", "*.good.com:443", "*", "*:80", "10.0.0.0/8", "http://good.com/x", "0.0.0.0/0", "udp://good.com:53", "x.good.com"}
	rapid.Check(t, func(rt *rapid.T) {
		allow := rapid.SliceOfDistinct(rapid.SampledFrom(rules), rapid.ID[string]).Draw(rt, "allow")
		deny := rapid.SliceOfNDistinct(rapid.SampledFrom(rules), 0, 2, rapid.ID[string]).Draw(rt, "deny")
		d := Dest{Protocol: rapid.SampledFrom([]string{"tcp", "udp", "icmp"}).Draw(rt, "protocol"), Names: rapid.SliceOfN(hostile(), 0, 3).Draw(rt, "names"),
			Addr: hostileAddr().Draw(rt, "addr"), Port: rapid.SampledFrom([]int{0, 53, 80, 443, 65535}).Draw(rt, "port")}
		j := judgeOf(t, allow, deny)
		v := j.Connect(d)
		covered := slices.ContainsFunc(allow, func(s string) bool {
			p, err := netip.ParsePrefix(s)
			return err == nil && p.Contains(d.Addr.Unmap().WithZone(""))
		})
		switch {
		case !v.Allowed:
			if v.Rule == "" {
				rt.Fatalf("a refusal without a rule: %+v", v)
			}
			return
		case addrKind(d.Addr) == kindLoopback:
			rt.Fatalf("the loopback is allowed: %+v", v)
		case addrKind(d.Addr) != kindPublic && !covered:
			rt.Fatalf("an address that is not public is allowed: %+v", v)
		case len(allow) == 0 || slices.Contains(deny, "*"):
			rt.Fatalf("allowed by nothing, or though all is denied: %+v", v)
		case v.Name != "" && v.Name != "good.com" && !strings.HasSuffix(v.Name, ".good.com") && !slices.ContainsFunc(allow, func(s string) bool { return s[0] == '*' || s == "0.0.0.0/0" }):
			rt.Fatalf("a name that no rule has is allowed: %+v", v)
		}
		// More that is denied never allows more, and less that is allowed neither.
		if j := judgeOf(t, allow, append(slices.Clone(deny), "*")); j.Connect(d).Allowed {
			rt.Fatal("allowed though all is denied")
		}
		if len(d.Names) > 0 {
			sni := hostile().Draw(rt, "sni")
			if s := j.Server(d, sni); s.Allowed && sni != "" {
				name, ok := NormalName(sni)
				if _, literal := literal(sni); !literal && (!ok || j.deniedName(d, name) != nil) {
					rt.Fatalf("%q is allowed as the server's name: %+v", sni, s)
				}
			}
		}
	})
}

// Paths are never allowed by a reading that another reading contradicts.
func FuzzRequestPath(f *testing.F) {
	for _, s := range []string{"/v1/x", "/v1/../x", "/v1/%2e%2e/x", "/v1;a/b", "*", "//", "/v1/%252e"} {
		f.Add(s)
	}
	j := judgeOf(f, []string{"http://a.com/v1/**"}, nil)
	all := judgeOf(f, []string{"a.com"}, []string{"http://a.com/v1/**"})
	d := Dest{Protocol: "tcp", Names: []string{"a.com"}, Addr: netip.MustParseAddr("8.8.8.8"), Port: 80}
	f.Fuzz(func(t *testing.T, path string) {
		allowed := j.Request(d, "GET", "a.com", path).Allowed
		open := all.Request(d, "GET", "a.com", path).Allowed
		if allowed && open {
			t.Errorf("%q is allowed by a rule for /v1 and not denied by one", path)
		}
		raw, _, _ := strings.Cut(path, "?")
		low := strings.ToLower(raw)
		for _, bad := range []string{"..", "//", `\`, "%2f", "%5c", "%00", "%25%32", "#"} {
			if allowed && bad != ".." && strings.Contains(low, bad) {
				t.Errorf("%q is allowed", path)
			}
		}
		if allowed && !strings.HasPrefix(readPath(path).full, "/v1") {
			t.Errorf("%q is allowed", path)
		}
	})
}

func BenchmarkConnect(b *testing.B) {
	j := judgeOf(b, []string{"a.com:443", "*.b.com", "10.0.0.0/8", "c.com"}, []string{"x.b.com"})
	d := Dest{Protocol: "tcp", Names: []string{"c.com"}, Addr: netip.MustParseAddr("8.8.8.8"), Port: 443}
	b.ReportAllocs()
	for b.Loop() {
		if !j.Connect(d).Allowed {
			b.Fatal("refused")
		}
	}
}

// N3: a further rule that denies never allows anything, a further one that allows
// never refuses a connection, and what is allowed in a connection presumes the
// connection.
func TestNetJudgeIsMonotonic(t *testing.T) {
	rules := []string{"good.com", "*.good.com:443", "*", "*:80", "10.0.0.0/8", "GET http://good.com/x", "http://good.com/**", "GET http://10.0.0.1", "0.0.0.0/0:80", "udp://good.com:53", "DELETE http://a.com/x/*"}
	rapid.Check(t, func(rt *rapid.T) {
		list := func(name string, most int) []string {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(rules), 0, most, rapid.ID[string]).Draw(rt, name)
		}
		allow, deny, more := list("allow", 4), list("deny", 2), rapid.SampledFrom(rules).Draw(rt, "more")
		d := Dest{Protocol: rapid.SampledFrom([]string{"tcp", "udp", "icmp"}).Draw(rt, "protocol"), Names: rapid.SliceOfN(hostile(), 0, 2).Draw(rt, "names"),
			Addr: rapid.OneOf(hostileAddr(), rapid.Just(netip.MustParseAddr("8.8.8.8"))).Draw(rt, "addr"), Port: rapid.SampledFrom([]int{53, 80, 443}).Draw(rt, "port")}
		method := rapid.SampledFrom([]string{"GET", "POST", "get", "DELETE"}).Draw(rt, "method")
		host, path := hostile().Draw(rt, "host"), rapid.OneOf(rapid.SampledFrom([]string{"/", "/x", "/x/y", "/x/../y", "//x", "*"}), rapid.String()).Draw(rt, "path")
		j := judgeOf(t, allow, deny)
		stricter, looser := judgeOf(t, allow, append(slices.Clone(deny), more)), judgeOf(t, append(slices.Clone(allow), more), deny)
		connect, server, request := j.Connect(d), j.Server(d, host), j.Request(d, method, host, path)
		switch {
		case server.Allowed && !connect.Allowed || request.Allowed && !server.Allowed && host == withoutPort(host):
			rt.Fatalf("allowed in a connection that is not: %+v, %+v, %+v", connect, server, request)
		case stricter.Connect(d).Allowed && !connect.Allowed, stricter.Request(d, method, host, path).Allowed && !request.Allowed, stricter.Server(d, host).Allowed && !server.Allowed:
			rt.Fatalf("denying %s allows something", more)
		case connect.Allowed && !looser.Connect(d).Allowed:
			rt.Fatalf("allowing %s refuses something: %+v", more, looser.Connect(d))
		}
		for _, n := range d.Names {
			if stricter.Name(n).Allowed && !j.Name(n).Allowed || j.Name(n).Allowed && !looser.Name(n).Allowed {
				rt.Fatalf("the look-up of %q does not follow the rules", n)
			}
		}
	})
}
