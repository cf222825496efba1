package policy

import (
	"encoding/json"
	"reflect"
	"testing"
)

// N3: the forms of a rule about requests inside TLS, and what each of them is.
func TestHTTPSRules(t *testing.T) {
	doc := mustParse(t, "f", `
network:
  allow:
    - https://a.example/repos/**
    - {host: b.example, protocol: https, methods: [get], paths: [/v1/*]}
    - {host: c.example, inspect: true}
    - {host: d.example, port: 8443, inspect: true, methods: [GET]}
    - {host: "*.e.example", port: 443, inspect: false, reason: its client pins a certificate}
  deny:
    - DELETE https://a.example
    - https://f.example
`)
	p, _, err := Merge(Layered{Doc: doc, Layer: LayerUser})
	if err != nil {
		t.Fatal(err)
	}
	strip := func(rules []HostRule) []HostRule {
		for i := range rules {
			rules[i].Origin = Origin{}
		}
		return rules
	}
	allow := []HostRule{
		{Host: "a.example", Port: 443, Protocol: HTTPS, Paths: []string{"/repos/**"}},
		{Host: "b.example", Port: 443, Protocol: HTTPS, Methods: []string{"GET"}, Paths: []string{"/v1/*"}},
		{Host: "c.example", Port: 443, Protocol: HTTPS, Paths: []string{"/**"}},
		{Host: "d.example", Port: 8443, Protocol: HTTPS, Methods: []string{"GET"}},
		{Host: "*.e.example", Port: 443, EndToEnd: true, Reason: "its client pins a certificate"},
	}
	if got := strip(p.Network.Allow); !reflect.DeepEqual(got, allow) {
		t.Errorf("allow: got\n%+v\nwant\n%+v", got, allow)
	}
	deny := []HostRule{
		{Host: "a.example", Port: 443, Protocol: HTTPS, Methods: []string{"DELETE"}, Paths: []string{"/**"}},
		{Host: "f.example", Port: 443, Protocol: "tcp"}, // nobody has to look inside to deny all
	}
	if got := strip(p.Network.Deny); !reflect.DeepEqual(got, deny) {
		t.Errorf("deny: got\n%+v\nwant\n%+v", got, deny)
	}
	for i, want := range []string{
		`"https://a.example/repos/**"`, `"GET https://b.example/v1/*"`, `"https://c.example"`,
		`{"host":"d.example","port":"8443","protocol":"https","methods":["GET"]}`,
		`{"host":"*.e.example","port":"443","inspect":false,"reason":"its client pins a certificate"}`,
	} {
		if got, err := json.Marshal(p.Network.Allow[i]); err != nil || string(got) != want {
			t.Errorf("rule %d is written as %s, %v; want %s", i, got, err, want)
		}
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

// A project that is not trusted can deny requests, and cannot allow or exempt any.
func TestUntrustedHTTPSRules(t *testing.T) {
	doc := mustParse(t, "f", `network: {allow: ["https://a.example", {host: b.example, inspect: false}], deny: ["POST https://c.example/x"]}`)
	p, ignored, err := Merge(Layered{Doc: doc, Layer: LayerProject, Untrusted: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Network.Allow) != 0 || len(ignored) != 2 {
		t.Errorf("allowed %v, ignored %v", p.Network.Allow, ignored)
	}
	if len(p.Network.Deny) != 1 || p.Network.Deny[0].String() != "POST https://c.example/x" {
		t.Errorf("denied %v", p.Network.Deny)
	}
}
