package policy

import (
	"reflect"
	"strings"
	"testing"
)

// N3
func TestParseHost(t *testing.T) {
	for text, want := range map[string]HostRule{
		"example.com":              {Host: "example.com"},
		"Example.COM.":             {Host: "example.com"},
		"*.example.com":            {Host: "*.example.com"},
		"*.example.com:8080":       {Host: "*.example.com", Port: 8080},
		"*":                        {Host: "*"},
		"*:443":                    {Host: "*", Port: 443},
		"localhost:1":              {Host: "localhost", Port: 1},
		"a.example:8000-8010":      {Host: "a.example", Port: 8000, LastPort: 8010},
		"192.0.2.1":                {Host: "192.0.2.1"},
		"192.0.2.1:53":             {Host: "192.0.2.1", Port: 53},
		"1.2.3.0/24":               {Host: "1.2.3.0/24"},
		"1.2.3.0/24:443":           {Host: "1.2.3.0/24", Port: 443},
		"::1":                      {Host: "::1"},
		"[::1]":                    {Host: "::1"},
		"[::1]:443":                {Host: "::1", Port: 443},
		"[2001:db8::/32]:443":      {Host: "2001:db8::/32", Port: 443},
		"2001:DB8::1":              {Host: "2001:db8::1"},
		"::ffff:127.0.0.1":         {Host: "127.0.0.1"},
		"xn--bcher-kva.de":         {Host: "xn--bcher-kva.de"},
		"_srv.a_b.example":         {Host: "_srv.a_b.example"},
		"tcp://a.example:22":       {Host: "a.example", Port: 22, Protocol: "tcp"},
		"UDP://a.example:53":       {Host: "a.example", Port: 53, Protocol: "udp"},
		"icmp://a.example":         {Host: "a.example", Protocol: "icmp"},
		"udp://[2001:db8::1]:443":  {Host: "2001:db8::1", Port: 443, Protocol: "udp"},
		"private://a.corp:443":     {Host: "a.corp", Port: 443, Private: true},
		"private://udp://*.corp":   {Host: "*.corp", Protocol: "udp", Private: true},
		"private://http://a.corp/": {Host: "a.corp", Port: 80, Protocol: "tcp", Private: true, Paths: []string{"/"}},
		"http://a.example":         {Host: "a.example", Port: 80, Protocol: "tcp", Paths: []string{"/**"}},
		"http://a.example/":        {Host: "a.example", Port: 80, Protocol: "tcp", Paths: []string{"/"}},
		"http://a.example:81/v1/*": {Host: "a.example", Port: 81, Protocol: "tcp", Paths: []string{"/v1/*"}},
		"http://[2001:db8::1]/x":   {Host: "2001:db8::1", Port: 80, Protocol: "tcp", Paths: []string{"/x"}},
		"https://a.example":        {Host: "a.example", Port: 443, Protocol: "https", Paths: []string{"/**"}},
		"HTTPS://a.example:444/*":  {Host: "a.example", Port: 444, Protocol: "https", Paths: []string{"/*"}},
		"https://[2001:db8::1]/x":  {Host: "2001:db8::1", Port: 443, Protocol: "https", Paths: []string{"/x"}},
		"get,HEAD https://*.a/b":   {Host: "*.a", Port: 443, Protocol: "https", Methods: []string{"GET", "HEAD"}, Paths: []string{"/b"}},
		"private://https://a.corp": {Host: "a.corp", Port: 443, Protocol: "https", Private: true, Paths: []string{"/**"}},
		"GET http://a.example":     {Host: "a.example", Port: 80, Protocol: "tcp", Methods: []string{"GET"}, Paths: []string{"/**"}},
	} {
		got, err := ParseHost(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
			continue
		}
		if again, err := ParseHost(got.String()); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%q is written as %q, which reads as %+v, %v", text, got, again, err)
		}
	}
	for _, bad := range []string{
		"", "*.", "*.*.com", "a*.com", "**", "*x", "a..b", ".a", "a:0", "a:65536", "a:x", "a:", ":443", "[::1", "[a]:443", "[::1]443", "fe80::1%eth0",
		"1.2.3.4/24", "1.2.3/24", "127.1", "2130706433", "0x7f000001", "0x7f.1", "1.2.3.4.5", "256.1.1.1", "0177.0.0.1", "a b", "bücher.de",
		"a\x00b", "user@host", "a:2-1", "a:1-", "a:-1", "a:1-65536", "a:1-2-3", strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 130) + "com", "1.2.3.4.",
		"http://", "http:///x", "tcp://", "http://a/%2e", "http://a/..", "http://a//b", "http://a/b?c", "http://a/b;c", "http://a/**b", `http://a/b\c`, "http://a/\x01", "http://user@a/",
	} {
		if got, err := ParseHost(bad); err == nil {
			t.Errorf("%q reads as %+v", bad, got)
		}
	}
}

// F4: each error says what to write instead.
func TestHostErrors(t *testing.T) {
	for text, want := range map[string]string{
		"GET a.example":         `"GET a.example" has a method, and is no URL of HTTP; write METHOD http://host/path or METHOD https://host/path`,
		"G.T https://a.example": `"G.T" is not a method of HTTP; write a method such as GET, or none for all of them`,
		"private://10.0.0.1":    `"private://10.0.0.1" is private and no name of a host; name a host, or leave private out: a rule for an address opens it as it is`,
		"private://*":           `"private://*" is private and no name of a host; name a host, or leave private out: a rule for an address opens it as it is`,
		"ftp://a.example":       `"ftp://a.example" has the unknown scheme "ftp"; write tcp://, udp://, icmp://, http:// or https://, or the host alone`,
		"a.example/v1":          `"a.example/v1" has a path, and only URLs of HTTP have one; write a.example, https://a.example/v1, or http://a.example/v1 for plain HTTP`,
		"10.0.0.0/99":           `"10.0.0.0/99": 99 is no prefix length; write a length from 0 to 32, as in 10.0.0.0/32`,
		"10.0.0.0/v1":           `"10.0.0.0/v1" has a path, and only URLs of HTTP have one; write 10.0.0.0, https://10.0.0.0/v1, or http://10.0.0.0/v1 for plain HTTP`,
		"icmp://a.example:1":    `"icmp://a.example:1" has a port, and icmp has none; leave the port out`,
		"a.example:99999":       `"a.example:99999" has a bad port; write a port from 1 to 65535, a range such as 8000-8010, or none for every port`,
		"127.1":                 `"127.1" is neither a name nor an address; write the whole address, for example 127.0.0.1`,
		"http://a/b?c":          `"/b?c" holds a query or a fragment, and only paths are judged; leave out all from the ? or # on`,
		"http://a/%41":          `"/%41" holds a % escape; write it decoded: requests are decoded before they are judged`,
		"http://a/x/../y":       `"/x/../y" is not in its shortest form; write it without . and .. and double slashes`,
	} {
		if _, err := ParseHost(text); err == nil || err.Error() != want {
			t.Errorf("%q: got  %v\nwant %s", text, err, want)
		}
	}
}

func TestParsePorts(t *testing.T) {
	for text, want := range map[string]PortRule{
		"8080":                {Host: 8080, Inside: 8080},
		"8080:80":             {Host: 8080, Inside: 80},
		"0:80":                {Host: 0, Inside: 80},
		"0.0.0.0:8080:80":     {Address: "0.0.0.0", Host: 8080, Inside: 80},
		"127.0.0.1:8080":      {Address: "127.0.0.1", Host: 8080, Inside: 8080},
		"[::1]:8080:80/udp":   {Address: "::1", Host: 8080, Inside: 80, Protocol: "udp"},
		"53/udp":              {Host: 53, Inside: 53, Protocol: "udp"},
		"53/tcp":              {Host: 53, Inside: 53},
		"[::ffff:10.0.0.1]:1": {Address: "10.0.0.1", Host: 1, Inside: 1},
	} {
		if want.Protocol == "" {
			want.Protocol = "tcp"
		}
		got, err := parsePortRule(text, false)
		if err != nil || got != want {
			t.Errorf("publish %q: got %+v, %v; want %+v", text, got, err, want)
			continue
		}
		if again, err := parsePortRule(got.String(), false); err != nil || again != got {
			t.Errorf("publish %q is written as %q, which reads as %+v, %v", text, got, again, err)
		}
	}
	for _, bad := range []string{"", "0", "a", "-1", "65536", "1:2:3", "1:", ":1", "a.b:1", "localhost:1", "1.2.3.4", "::1:80", "[::1]", "[::1]80", "80/icmp", "80/", "1.2.3.4:", "fe80::1%lo:80"} {
		if got, err := parsePortRule(bad, false); err == nil || !strings.Contains(err.Error(), "; ") {
			t.Errorf("publish %q reads as %+v, or %v has no fix", bad, got, err)
		}
	}
	for text, want := range map[string]PortRule{
		"5432":      {Host: 5432, Inside: 5432, Protocol: "tcp"},
		"5432:15":   {Host: 5432, Inside: 15, Protocol: "tcp"},
		"53:54/udp": {Host: 53, Inside: 54, Protocol: "udp"},
	} {
		if got, err := parsePortRule(text, true); err != nil || got != want || got.String() != text {
			t.Errorf("forward %q: got %+v (%s), %v; want %+v", text, got, got, err, want)
		}
	}
	for _, bad := range []string{"", "0", "0:80", "a", "127.0.0.1:80", "[::1]:80", "localhost:80", "1:2:3", "80/x"} {
		if got, err := parsePortRule(bad, true); err == nil || !strings.Contains(err.Error(), "; ") {
			t.Errorf("forward %q reads as %+v, or %v has no fix", bad, got, err)
		}
	}
}

func TestParseDestination(t *testing.T) {
	for text, want := range map[string]Destination{
		"a.example:443":             {Protocol: "tcp", Host: "a.example", Port: 443},
		"A.example.":                {Protocol: "tcp", Host: "a.example"},
		"udp://1.2.3.4:53":          {Protocol: "udp", Host: "1.2.3.4", Port: 53},
		"icmp://a.example":          {Protocol: "icmp", Host: "a.example"},
		"[2001:db8::1]:1":           {Protocol: "tcp", Host: "2001:db8::1", Port: 1},
		"https://a.example/x?y":     {Protocol: "tcp", Host: "a.example", Port: 443, Method: "GET", Path: "/x?y", TLS: true},
		"PUT https://a.example:444": {Protocol: "tcp", Host: "a.example", Port: 444, Method: "PUT", Path: "/", TLS: true},
		"http://a.example":          {Protocol: "tcp", Host: "a.example", Port: 80, Method: "GET", Path: "/"},
		"POST http://a:81/x?y#z":    {Protocol: "tcp", Host: "a", Port: 81, Method: "POST", Path: "/x?y#z"},
		"GET   http://a.example/%2": {Protocol: "tcp", Host: "a.example", Port: 80, Method: "GET", Path: "/%2"},
	} {
		if got, err := ParseDestination(text); err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "*", "*.a", "10.0.0.0/8", "a:1-2", "GET a:80", "GET tcp://a:80", "ftp://a", "icmp://a:1", "a/b", "127.1:80"} {
		if got, err := ParseDestination(bad); err == nil {
			t.Errorf("%q reads as %+v", bad, got)
		}
	}
}

// N3 W4: a file's rules, in both forms, with their places.
func TestNetworkSection(t *testing.T) {
	doc := mustParse(t, "f", `
network:
  mode: user
  link: veth
  allow:
    - a.example:443
    - {host: API.example, port: 8000-8010, protocol: tcp, reason: the service}
    - {host: b.example, methods: [get, HEAD], paths: ["/v1/**"]}
    - {host: 10.0.0.0/8, port: 5432}
  deny: [x.a.example, "udp://*:443"]
  publish: [8080, "0.0.0.0:80:8081", 53/udp]
  forward: [5432, "6379:16379"]
`)
	p, ignored := mustMerge(t, Layered{Doc: doc, Layer: LayerUser})
	at := func(line int) Origin { return Origin{Layer: LayerUser, Source: "f", Line: line, Column: 7} }
	wantAllow := []HostRule{
		{Host: "a.example", Port: 443, Origin: at(6)},
		{Host: "api.example", Port: 8000, LastPort: 8010, Protocol: "tcp", Reason: "the service", Origin: at(7)},
		{Host: "b.example", Port: 80, Protocol: "tcp", Methods: []string{"GET", "HEAD"}, Paths: []string{"/v1/**"}, Origin: at(8)},
		{Host: "10.0.0.0/8", Port: 5432, Origin: at(9)},
	}
	n := p.Network
	if !reflect.DeepEqual(n.Allow, wantAllow) {
		t.Errorf("allow is %+v", n.Allow)
	}
	if len(ignored) > 0 || n.Mode != NetworkUser || n.Link != LinkVeth || n.LinkOrigin.Line != 4 {
		t.Errorf("got %+v, ignored %v", n, ignored)
	}
	if len(n.Deny) != 2 || n.Deny[1].Protocol != "udp" || n.Deny[1].Host != "*" {
		t.Errorf("deny is %+v", n.Deny)
	}
	if len(n.Publish) != 3 || n.Publish[1].String() != "0.0.0.0:80:8081" || n.Publish[2].Protocol != "udp" || n.Publish[0].Origin.Line != 11 {
		t.Errorf("publish is %+v", n.Publish)
	}
	if len(n.Forward) != 2 || n.Forward[1].Inside != 16379 {
		t.Errorf("forward is %+v", n.Forward)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	// A copy shares nothing.
	c := p.Clone()
	c.Network.Allow[2].Methods[0], c.Network.Allow[2].Paths[0], c.Network.Publish[0].Host = "PUT", "/", 1
	if !reflect.DeepEqual(p.Network.Allow, wantAllow) || p.Network.Publish[0].Host != 8080 {
		t.Error("a change of the copy changes the original")
	}
}

func TestNetworkSectionErrors(t *testing.T) {
	for text, want := range map[string]string{
		"allow: [localhost:5432]":                             `network.allow[0]: "localhost" is the host's loopback, which no rule for hosts opens; forward its ports one by one: forward: [5432], or --forward 5432`,
		"allow: [127.0.0.1]":                                  `network.allow[0]: "127.0.0.1" is the host's loopback, which no rule for hosts opens; forward its ports one by one: forward: [PORT], or --forward PORT`,
		"allow: [127.0.0.0/8, \"::1\", 0.0.0.0, x.localhost]": `network.allow[0]: "127.0.0.0/8" is the host's loopback`,
		"allow: [{host: \"a:1\"}]":                            `network.allow[0]: "a:1" holds a port; write host: a and port: 1`,
		"allow: [{host: \"tcp://a\"}]":                        `network.allow[0]: "tcp://a" holds a scheme; write the host alone, and its protocol, port and paths apart`,
		"allow: [{port: 1}]":                                  `network.allow[0]: the host is empty; `,
		"allow: [{host: a, port: 0}]":                         `network.allow[0].port: "0" is not a port; write a port from 1 to 65535`,
		"allow: [{host: a, protocol: sctp}]":                  `network.allow[0].protocol: "sctp" is not a protocol; write tcp, udp, icmp or https, or leave it out for all of them`,
		"allow: [{host: a, protocol: udp, methods: [GET]}]":   `network.allow[0]: "a" is about udp, and only HTTP has methods and paths; leave the protocol out, or the methods and paths`,
		"allow: [{host: a, protocol: udp, inspect: true}]":    `network.allow[0]: "a" is about udp, and only TLS over TCP can be inspected; leave the protocol out, or inspect`,
		"allow: [{host: a, inspect: false, paths: [/x]}]":     `network.allow[0]: "a" has methods or paths, which only a look inside can tell; leave inspect out, or the methods and paths`,
		"allow: [{host: a, inspect: false, protocol: https}]": `network.allow[0]: "a" has methods or paths, which only a look inside can tell; leave inspect out, or the methods and paths`,
		"deny: [{host: a, inspect: true}]":                    `network.deny[0]: "a" is denied, so there is nothing to look into; leave inspect out`,
		"allow: [{host: a, methods: [\"G T\"]}]":              `network.allow[0]: "G T" is not a method of HTTP; write a method such as GET, or none for all of them`,
		"allow: [{host: a, paths: [v1]}]":                     `network.allow[0]: "v1" does not start with a slash; write a path such as /v1/*, or /v1/** with all below it`,
		"allow: [{host: a, path: /v1}]":                       `network.allow[0].path: unknown key; did you mean "paths"?`,
		"link: tap":                                           `network.link: "tap" is not one of auto, tun, veth, proxy`,
		"{mode: none, link: veth}":                            `network.link: the mode none on line 1 has no link; write mode: user, or remove the link`,
		"{mode: host, publish: [80]}":                         `network.publish: with mode host on line 1 every port is the host's own; remove the list, or write another mode`,
		"{mode: host, forward: [80]}":                         `network.forward: with mode host on line 1 every port is the host's own; remove the list, or write another mode`,
		"publish: [eighty]":                                   `network.publish[0]: "eighty" is not a port to publish; write [ADDRESS:]PORT[:INSIDEPORT], with /udp at the end for UDP`,
		"publish: [8080, \"8080:81\"]":                        `network.publish[1]: 8080 and 8080:81 listen on the same port; keep one of them`,
		"forward: [\"1:9\", \"2:9\"]":                         `network.forward[1]: 1:9 and 2:9 listen on the same port; keep one of them`,
		"forward: [\"10.0.0.1:80\"]":                          `network.forward[0]: "10.0.0.1:80" holds an address, and only the host's loopback is forwarded; write the port alone; another machine is reached by a rule of network.allow`,
	} {
		if !strings.HasPrefix(text, "{") {
			text = "{" + text + "}"
		}
		_, err := Parse("f", []byte("network: "+text+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// F4 F7: a project that is not trusted may deny, and opens nothing.
func TestUntrustedNetwork(t *testing.T) {
	user := mustParse(t, "u", "network: {allow: [a.example], link: veth}")
	project := mustParse(t, "p", "network: {mode: user, link: proxy, allow: [evil.example], deny: [b.a.example], publish: [80], forward: [5432]}")
	p, ignored := mustMerge(t, Layered{Doc: user, Layer: LayerUser}, Layered{Doc: project, Layer: LayerProject, Untrusted: true})
	n := p.Network
	if len(n.Allow) != 1 || n.Link != LinkVeth || len(n.Publish) != 0 || len(n.Forward) != 0 || len(n.Deny) != 1 || !n.Deny[0].Origin.Untrusted {
		t.Errorf("got %+v", n)
	}
	var texts []string
	for _, i := range ignored {
		texts = append(texts, i.Text)
	}
	want := []string{"network.link: proxy", "network allow evil.example", "network publish 80", "network forward 5432"}
	if !reflect.DeepEqual(texts, want) {
		t.Errorf("ignored are %q", texts)
	}
}

// A higher layer's mode leaves no rule without a meaning.
func TestNetworkModeDrops(t *testing.T) {
	user := mustParse(t, "u", "network: {allow: [a.example], link: veth, publish: [80], forward: [81], deny: [b]}")
	for mode, ports := range map[string]int{"none": 2, "loopback": 2, "user": 2} {
		p, _ := mustMerge(t, Layered{Doc: user, Layer: LayerUser}, Layered{Doc: mustParse(t, "c", "network: "+mode), Layer: LayerCommand})
		n := p.Network
		if got := len(n.Publish) + len(n.Forward); got != ports || (mode == "user") != (n.Link == LinkVeth && len(n.Allow) == 1) {
			t.Errorf("%s: %+v", mode, n)
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
	p, _ := mustMerge(t, Layered{Doc: user, Layer: LayerUser}, Layered{Doc: mustParse(t, "c", "network: host"), Layer: LayerCommand})
	if n := p.Network; len(n.Publish)+len(n.Forward) != 0 {
		t.Errorf("mode host of a higher layer keeps %+v", n)
	}
	p, _ = mustMerge(t, Layered{Doc: mustParse(t, "u", "network: host"), Layer: LayerUser}, Layered{Doc: mustParse(t, "c", "network: {publish: [80]}"), Layer: LayerCommand})
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "c:1:21: network.publish: with mode host (u:1) every port is the host's own") {
		t.Errorf("a port that somebody waits for is lost: %v", err)
	}
	// Of two that listen on the same port the higher layer's stays.
	p, _ = mustMerge(t, Layered{Doc: user, Layer: LayerUser}, Layered{Doc: mustParse(t, "c", `network: {publish: ["127.0.0.1:80:8080", "0:1", "0:1"], forward: ["82:81"]}`), Layer: LayerCommand})
	if n := p.Network; len(n.Publish) != 3 || n.Publish[0].Inside != 8080 || len(n.Forward) != 1 || n.Forward[0].Host != 82 {
		t.Errorf("got %+v", n)
	}
	p = Workspace("/w").With(AllowHosts("a"), Set("network.link", "proxy"), Set("network.publish", "80"), Set("network.forward", "81/udp"), WithNetwork(NetworkHost))
	if n := p.Network; len(n.Allow)+len(n.Publish)+len(n.Forward) != 0 || n.Link != LinkAuto {
		t.Errorf("mode host keeps %+v", n)
	}
}

func TestValidateNetwork(t *testing.T) {
	base := func(n Network) Policy { n.Mode = NetworkUser; return Policy{Network: n} }
	for want, p := range map[string]Policy{
		`policy: network.allow[0]: the range "5-3" ends before it starts; write 3-5`:                                                                              base(Network{Allow: []HostRule{{Host: "a", Port: 5, LastPort: 3}}}),
		`policy: network.allow[0]: "sctp" is not a protocol; write tcp, udp, icmp or https, or leave it out for all of them`:                                      base(Network{Allow: []HostRule{{Host: "a", Protocol: "sctp"}}}),
		`policy: network.allow[0]: "::1" is the host's loopback, which no rule for hosts opens; forward its ports one by one: forward: [PORT], or --forward PORT`: base(Network{Allow: []HostRule{{Host: "::1"}}}),
		`policy: network.link: unknown value 9 (known: auto, tun, veth, proxy)`:                                                                                   base(Network{Link: 9}),
		`Go API: network.publish: "x" is not a port to publish; ` + publishForms:                                                                                  Policy{}.With(Set("network.publish", "x")),
		`policy: network.forward[0]: "0" is not a port to forward; ` + forwardForms:                                                                               base(Network{Forward: []PortRule{{}}}),
		`policy: network.forward: with mode host every port is the host's own; remove the list, or write another mode`:                                            {Network: Network{Mode: NetworkHost, Forward: []PortRule{{Host: 1, Inside: 1}}}},
	} {
		if err := p.Validate(); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// N3: what parses is written as something that reads the same, and never panics.
func FuzzParseHost(f *testing.F) {
	for _, s := range []string{"a.example:443", "udp://[2001:db8::1]:53", "http://a/v1/**", "*", "10.0.0.0/8:1-2", "127.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, _ = ParseDestination(s)
		e, err := ParseHost(s)
		if err != nil {
			if !strings.Contains(err.Error(), "; ") {
				t.Errorf("%q: %v has no fix", s, err)
			}
			return
		}
		if again, err := ParseHost(e.String()); err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%q reads as %+v, whose text %q reads as %+v, %v", s, e, e, again, err)
		}
	})
}
