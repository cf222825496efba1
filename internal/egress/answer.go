package egress

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/plan"
)

// sinkTTL is how long the answer for a refused name holds: no longer than it takes
// to connect, because it may be allowed meanwhile.
const sinkTTL = 1

// typeANY asks for everything, which need not be answered (RFC 8482).
const typeANY = dnsmessage.Type(255)

// answerQuestion judges the name and answers.
func (g *Gate) answerQuestion(ctx context.Context, client dnsClient, q *query) []byte {
	kind := q.question.Type
	switch {
	case kind == typeANY:
		return q.reply(dnsmessage.RCodeNotImplemented, nil)
	case kind == dnsmessage.TypePTR && strings.HasSuffix(strings.ToLower(q.raw), ".arpa"):
		return g.answerReverse(q)
	case isLocalhost(q.name):
		return q.reply(dnsmessage.RCodeSuccess, addressRecords(q, loopbacks(), time.Minute))
	}
	asked := q.name
	if !isAddress(kind) {
		asked = serviceHost(q.name)
	}
	if q.name == "" {
		asked = q.raw
	}
	v := g.config.Judge().Name(asked)
	switch {
	case !v.Allowed:
		return g.answerRefused(client, q, &v, netip.Addr{})
	case isAddress(kind):
		return g.answerAddress(ctx, client, q)
	}
	return g.answerOther(ctx, q)
}

func isAddress(kind dnsmessage.Type) bool {
	return kind == dnsmessage.TypeA || kind == dnsmessage.TypeAAAA
}

// isLocalhost reports whether a name is for the loopback of whoever asks, which
// nobody else is to be asked for (RFC 6761, 6.3).
func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

func loopbacks() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

// serviceHost is the host that a name like _ldap._tcp.example.com is about.
func serviceHost(name string) string {
	host := name
	for strings.HasPrefix(host, "_") {
		_, rest, ok := strings.Cut(host, ".")
		if !ok {
			return name
		}
		host = rest
	}
	return host
}

// answerAddress looks a name up, takes out the addresses that it must not lead
// to, and remembers the others, of both families: what leads where is known
// before the client learns it.
func (g *Gate) answerAddress(ctx context.Context, client dnsClient, q *query) []byte {
	found, ttl, err := g.lookUp(ctx, q.name)
	if err != nil {
		code := dnsmessage.RCodeServerFailure
		if notFound(err) {
			code = dnsmessage.RCodeNameError
		}
		return q.reply(code, nil)
	}
	judge := g.config.Judge()
	var allowed []netip.Addr
	var refusal plan.NetVerdict
	var refused netip.Addr
	for _, addr := range found {
		if v := judge.Answer(q.name, addr, g.isOwn(addr)); v.Allowed {
			allowed = append(allowed, addr)
		} else if refusal.Rule == "" {
			refusal, refused = v, addr
		}
	}
	if len(allowed) == 0 {
		return g.answerRefused(client, q, &refusal, refused)
	}
	g.names.remember(q.name, allowed, ttl, time.Now())
	return q.reply(dnsmessage.RCodeSuccess, addressRecords(q, allowed, ttl))
}

// addressRecords adds the addresses of the family that was asked for.
func addressRecords(q *query, addrs []netip.Addr, ttl time.Duration) answerer {
	return func(b *dnsmessage.Builder) error {
		h := dnsmessage.ResourceHeader{Name: q.question.Name, Class: dnsmessage.ClassINET, TTL: uint32(min(ttl, time.Hour) / time.Second)}
		for _, addr := range addrs {
			var err error
			switch {
			case addr.Is4() && q.question.Type == dnsmessage.TypeA:
				err = b.AResource(h, dnsmessage.AResource{A: addr.As4()})
			case addr.Is6() && q.question.Type == dnsmessage.TypeAAAA:
				err = b.AAAAResource(h, dnsmessage.AAAAResource{AAAA: addr.As16()})
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// answerRefused gives a refused name an address at which the connection can be
// refused with the reason. "No such name" would look like a mistake in the name.
func (g *Gate) answerRefused(client dnsClient, q *query, v *plan.NetVerdict, addr netip.Addr) []byte {
	name := q.name
	if name == "" {
		name = q.raw
	}
	hole, fresh := g.holes.of(name, time.Now())
	d := v.Denial(plan.OpResolve, plan.Dest{Names: []string{name}, Addr: addr})
	if fresh {
		g.noteRefused(client, &d)
	}
	reason := denials.Line(&d)
	switch {
	case q.name == "":
		return q.explain(dnsmessage.RCodeNameError, reason, nil)
	case q.question.Type == dnsmessage.TypeA:
		return q.explain(dnsmessage.RCodeSuccess, reason, sinkRecord(q, hole))
	case q.question.Type == dnsmessage.TypeAAAA:
		return q.explain(dnsmessage.RCodeSuccess, reason, nil)
	}
	return q.explain(dnsmessage.RCodeRefused, reason, nil)
}

func sinkRecord(q *query, hole netip.Addr) answerer {
	return addressRecords(q, []netip.Addr{hole}, sinkTTL*time.Second)
}

// noteRefused records a name that was not looked up.
func (g *Gate) noteRefused(client dnsClient, d *plan.Denial) {
	a := g.attempt(client.protocol, client.from, client.to)
	a.awaitOwner()
	d.Pid, d.Program = a.conn.Pid, a.conn.Program
	if tell := g.config.Denied; tell != nil {
		tell(*d)
	}
	a.conn.Protocol, a.conn.Name, a.conn.Port = "dns", d.Host, int(client.to.Port())
	a.conn.Rule, a.conn.Subject = d.Rule, d.Subject
	a.finish(nil)
}

// answerReverse tells the names of addresses that the sandbox knows by name, and
// asks nobody.
func (g *Gate) answerReverse(q *query) []byte {
	addr, ok := reverseAddr(strings.ToLower(q.raw))
	if !ok {
		return q.reply(dnsmessage.RCodeNameError, nil)
	}
	known := g.names.of(addr, time.Now())
	if addr.IsLoopback() {
		known = []string{"localhost"}
	} else if hole := g.holes.name(addr); hole != "" {
		known = []string{hole}
	}
	if len(known) == 0 {
		return q.reply(dnsmessage.RCodeNameError, nil)
	}
	return q.reply(dnsmessage.RCodeSuccess, func(b *dnsmessage.Builder) error {
		target, err := dnsmessage.NewName(known[0] + ".")
		if err != nil {
			return err
		}
		h := dnsmessage.ResourceHeader{Name: q.question.Name, Class: dnsmessage.ClassINET, TTL: 60}
		return b.PTRResource(h, dnsmessage.PTRResource{PTR: target})
	})
}

// reverseAddr reads a name of in-addr.arpa or ip6.arpa.
func reverseAddr(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		labels := strings.Split(rest, ".")
		if len(labels) != 4 {
			return netip.Addr{}, false
		}
		addr, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
		return addr, err == nil && addr.Is4()
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa")
	if !ok || len(rest) != 63 {
		return netip.Addr{}, false
	}
	var b [16]byte
	for i := range 32 {
		digit := strings.IndexByte("0123456789abcdef", rest[62-2*i])
		if digit < 0 || i < 31 && rest[61-2*i] != '.' {
			return netip.Addr{}, false
		}
		b[i/2] = b[i/2]<<4 | byte(digit)
	}
	return netip.AddrFrom16(b), true
}
