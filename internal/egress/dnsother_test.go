package egress

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestReverseNames(t *testing.T) {
	w := newWorld(t, "good.example")
	w.name("good.example", goodAddr, "2606:2800:220:1::1")
	w.lookup("good.example")
	w.lookup("bad.example")
	nibbles := "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.0.0.2.2.0.0.0.8.2.6.0.6.2.ip6.arpa"
	for name, want := range map[string]string{
		"10.216.184.93.in-addr.arpa": "good.example.", nibbles: "good.example.", "1.0.0.127.in-addr.arpa": "localhost.",
		"1.0.19.198.in-addr.arpa": "bad.example.", "8.8.8.8.in-addr.arpa": "", "x.in-addr.arpa": "", "1.2.3.in-addr.arpa": "",
	} {
		m := w.ask(name, dnsmessage.TypePTR)
		got := ""
		if len(m.Answers) == 1 {
			got = m.Answers[0].Body.(*dnsmessage.PTRResource).PTR.String()
		}
		if got != want || want == "" && m.RCode != dnsmessage.RCodeNameError {
			t.Errorf("%s: %q, %v", name, got, m.RCode)
		}
	}
	if len(w.resolved) != 1 {
		t.Errorf("asked upstream for %v", w.resolved)
	}
}

// upstream answers forwarded queries with the records.
func (w *world) upstream(change func(*dnsmessage.Message), records ...dnsmessage.Resource) {
	w.gate.config.Exchange = func(_ context.Context, query []byte) ([]byte, error) {
		var m dnsmessage.Message
		if err := m.Unpack(query); err != nil {
			return nil, err
		}
		w.mu.Lock()
		w.resolved = append(w.resolved, m.Questions[0].Name.String())
		w.mu.Unlock()
		m.Response, m.Answers, m.Additionals = true, records, nil
		if change != nil {
			change(&m)
		}
		return m.Pack()
	}
}

func record(name string, kind dnsmessage.Type, body dnsmessage.ResourceBody) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET, TTL: 60}, Body: body}
}

func TestOtherRecords(t *testing.T) {
	w := newWorld(t, "good.example")
	mx := record("good.example.", dnsmessage.TypeMX, &dnsmessage.MXResource{Pref: 1, MX: dnsmessage.MustNewName("mail.good.example.")})
	extra := record("mail.good.example.", dnsmessage.TypeA, &dnsmessage.AResource{A: [4]byte{10, 0, 0, 1}})
	w.upstream(func(m *dnsmessage.Message) { m.Additionals = []dnsmessage.Resource{extra} }, mx, extra)
	m := w.ask("Good.Example", dnsmessage.TypeMX)
	if len(m.Answers) != 1 || m.Answers[0].Header.Type != dnsmessage.TypeMX || len(addressesIn(m)) != 0 {
		t.Errorf("got %v", m.Answers)
	}
	for _, r := range m.Additionals {
		if r.Header.Type != dnsmessage.TypeOPT {
			t.Errorf("addresses came along: %v", r)
		}
	}
	if m := w.ask("_imaps._tcp.good.example", dnsmessage.TypeSRV); m.RCode != dnsmessage.RCodeSuccess {
		t.Errorf("a service of an allowed host: %v", m.RCode)
	}
	if m := w.ask("_imaps._tcp.evil.example", dnsmessage.TypeSRV); m.RCode != dnsmessage.RCodeRefused {
		t.Errorf("a service of another: %v", m.RCode)
	}
	if fmt.Sprint(w.resolved) != "[good.example. _imaps._tcp.good.example.]" {
		t.Errorf("asked upstream for %v", w.resolved)
	}
}

// An answer to another question, or with another identifier, is none.
func TestForgedAnswers(t *testing.T) {
	txt := record("good.example.", dnsmessage.TypeTXT, &dnsmessage.TXTResource{TXT: []string{"x"}})
	for name, change := range map[string]func(*dnsmessage.Message){
		"identifier": func(m *dnsmessage.Message) { m.ID++ },
		"name":       func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("evil.example.") },
		"type":       func(m *dnsmessage.Message) { m.Questions[0].Type = dnsmessage.TypeMX },
		"question":   func(m *dnsmessage.Message) { m.Response = false },
	} {
		w := newWorld(t, "good.example")
		w.upstream(change, txt)
		if m := w.ask("good.example", dnsmessage.TypeTXT); m.RCode != dnsmessage.RCodeServerFailure || len(m.Answers) != 0 {
			t.Errorf("%s: %v %v", name, m.RCode, m.Answers)
		}
	}
}

// HTTPS records lead past neither the names nor the comparison of names.
func TestServiceBindingsAreStripped(t *testing.T) {
	root, good := dnsmessage.MustNewName("."), dnsmessage.MustNewName("good.example.")
	param := func(k dnsmessage.SVCParamKey, v string) dnsmessage.SVCParam {
		return dnsmessage.SVCParam{Key: k, Value: []byte(v)}
	}
	full := dnsmessage.SVCBResource{Priority: 1, Target: root, Params: []dnsmessage.SVCParam{
		param(dnsmessage.SVCParamALPN, "\x02h2"), param(dnsmessage.SVCParamIPv4Hint, "\x0a\x00\x00\x01"), param(dnsmessage.SVCParamECH, "key"), param(dnsmessage.SVCParamIPv6Hint, strings.Repeat("\xfd", 16)),
	}}
	for _, test := range []struct {
		name string
		body dnsmessage.SVCBResource
		kept int
	}{
		{"hints", full, 1},
		{"the same target", dnsmessage.SVCBResource{Priority: 1, Target: good}, 1},
		{"an alias", dnsmessage.SVCBResource{Priority: 0, Target: dnsmessage.MustNewName("cdn.example.")}, 0},
		{"another target", dnsmessage.SVCBResource{Priority: 1, Target: dnsmessage.MustNewName("cdn.example.")}, 0},
		{"needs ECH", dnsmessage.SVCBResource{Priority: 1, Target: root, Params: []dnsmessage.SVCParam{param(dnsmessage.SVCParamMandatory, "\x00\x05"), param(dnsmessage.SVCParamECH, "key")}}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, "good.example")
			w.upstream(nil, record("good.example.", dnsmessage.TypeHTTPS, &dnsmessage.HTTPSResource{SVCBResource: test.body}))
			m := w.ask("good.example", dnsmessage.TypeHTTPS)
			if len(m.Answers) != test.kept {
				t.Fatalf("got %v", m.Answers)
			}
			for _, r := range m.Answers {
				for _, p := range r.Body.(*dnsmessage.HTTPSResource).Params {
					if !isHarmless(p.Key) {
						t.Errorf("%v is left", p.Key)
					}
				}
			}
		})
	}
}

func TestNameServers(t *testing.T) {
	got := nameServers("# c\nnameserver 192.0.2.1\noptions edns0\nnameserver fe80::1%eth0\nnameserver bad\n nameserver ::1 \nnameserver 192.0.2.9\n")
	if fmt.Sprint(got) != "[192.0.2.1:53 [fe80::1%eth0]:53 [::1]:53]" {
		t.Errorf("got %v", got)
	}
}

// The forwarder takes no answer with another identifier, and asks again by TCP
// if the answer was cut.
func TestAskingANameServer(t *testing.T) {
	tcp := listen(t)
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	query := makeQuery(t, "good.example", dnsmessage.TypeTXT)
	go func() {
		b := make([]byte, 2000)
		n, from, _ := udp.ReadFrom(b)
		forged := slices.Clone(b[:n])
		forged[0]++
		forged[2] |= 0x80
		udp.WriteTo(forged, from)
		b[2] |= 0x82 // an answer, cut
		udp.WriteTo(b[:n], from)
		c, err := tcp.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		m, _ := readMessage(c)
		m[2] |= 0x80
		c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
	}()
	got, err := askServer(context.Background(), tcp.Addr().String(), query)
	if err != nil || got[2]&2 != 0 || got[0] != query[0] {
		t.Errorf("%x, %v", got, err)
	}
}
