package egress

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
)

const (
	// sinkTTL is the lifetime of the answer for a refused name. It is short because
	// the name may be allowed soon.
	sinkTTL = time.Second
	// maxRecords bounds the records that are taken from one answer of a name server.
	maxRecords = 256

	resolvConf = "/etc/resolv.conf"
	// maxServers is how many name servers are asked, one after the other.
	maxServers = 3
	// serverWait bounds the wait for one name server.
	serverWait = 3 * time.Second
)

// Types of records that dnsmessage has no names for.
const (
	typeNAPTR = dnsmessage.Type(35)
	typeSSHFP = dnsmessage.Type(44)
	typeTLSA  = dnsmessage.Type(52)
	typeANY   = dnsmessage.Type(255) // asks for everything, and need not be answered (RFC 8482)
	typeCAA   = dnsmessage.Type(257)
)

// answerQuestion checks the name against the rules and answers the query.
func (g *Gate) answerQuestion(ctx context.Context, client dnsClient, q *query) []byte {
	kind := q.question.Type
	isAddress := kind == dnsmessage.TypeA || kind == dnsmessage.TypeAAAA
	switch {
	case kind == typeANY:
		return q.reply(dnsmessage.RCodeNotImplemented)
	case kind == dnsmessage.TypePTR && strings.HasSuffix(strings.ToLower(q.raw), ".arpa"):
		return g.answerReverse(q)
	case isLocalhost(q.name):
		return q.reply(dnsmessage.RCodeSuccess, q.addressRecords(loopbacks(), time.Minute)...)
	}
	asked := q.name
	if !isAddress {
		asked = serviceHost(q.name)
	}
	if q.name == "" {
		asked = q.raw
	}
	v := g.config.Judge().Name(asked)
	switch {
	case !v.Allowed:
		return g.answerRefused(client, q, &v, netip.Addr{})
	case isAddress:
		return g.answerAddress(ctx, client, q)
	}
	return g.answerOther(ctx, q)
}

// isLocalhost reports whether a name means the client's own loopback. No name server
// may be asked for such a name (RFC 6761, 6.3).
func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

func loopbacks() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

// serviceHost returns the host of a name like _ldap._tcp.example.com.
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

// answerAddress looks a name up, removes the addresses that the rules do not allow for
// it, and remembers the others. It remembers the addresses of both families before the
// client gets its answer.
func (g *Gate) answerAddress(ctx context.Context, client dnsClient, q *query) []byte {
	found, ttl, err := g.lookUp(ctx, q.name)
	if notFound(err) {
		return q.reply(dnsmessage.RCodeNameError)
	}
	if err != nil {
		return q.reply(dnsmessage.RCodeServerFailure)
	}
	rules := g.config.Judge()
	var allowed []netip.Addr
	var refusal judge.NetDecision
	var refused netip.Addr
	for _, addr := range found {
		if v := rules.Answer(q.name, addr, g.isOwn(addr)); v.Allowed {
			allowed = append(allowed, addr)
		} else if refusal.Rule == "" {
			refusal, refused = v, addr
		}
	}
	if len(allowed) == 0 {
		return g.answerRefused(client, q, &refusal, refused)
	}
	g.names.remember(q.name, allowed, ttl, time.Now())
	return q.reply(dnsmessage.RCodeSuccess, q.addressRecords(allowed, ttl)...)
}

// answerRefused gives a refused name an address at which the connection is refused
// with the reason. "No such name" would look like a typing mistake.
func (g *Gate) answerRefused(client dnsClient, q *query, v *judge.NetDecision, addr netip.Addr) []byte {
	name := q.name
	if name == "" {
		name = q.raw
	}
	hole, isNew := g.holes.of(name, time.Now())
	d := v.Denial(plan.OpResolve, judge.Dest{Names: []string{name}, Addr: addr}, "", "")
	if isNew {
		g.recordRefused(client, &d)
	}
	reason := denials.Line(&d)
	switch {
	case q.name == "":
		return q.explain(dnsmessage.RCodeNameError, reason)
	case q.question.Type == dnsmessage.TypeA, q.question.Type == dnsmessage.TypeAAAA:
		return q.explain(dnsmessage.RCodeSuccess, reason, q.addressRecords([]netip.Addr{hole}, sinkTTL)...)
	}
	return q.explain(dnsmessage.RCodeRefused, reason)
}

// recordRefused records that a name was refused and not looked up.
func (g *Gate) recordRefused(client dnsClient, d *plan.Denial) {
	a := g.attempt(client.protocol, client.from, client.to)
	a.AwaitOwner()
	d.Pid, d.Program = a.Pid, a.Program
	if g.config.Denied != nil {
		g.config.Denied(*d)
	}
	a.Protocol, a.Name, a.Port = "dns", d.Host, int(client.to.Port())
	a.Rule, a.Subject = d.Rule, d.Subject
	a.finish(nil)
}

// answerReverse returns the names of addresses that were answered before. It asks no
// name server.
func (g *Gate) answerReverse(q *query) []byte {
	addr, ok := reverseAddr(strings.ToLower(q.raw))
	if !ok {
		return q.reply(dnsmessage.RCodeNameError)
	}
	known := g.names.of(addr, time.Now())
	if addr.IsLoopback() {
		known = []string{"localhost"}
	} else if hole := g.holes.name(addr); hole != "" {
		known = []string{hole}
	}
	if len(known) == 0 {
		return q.reply(dnsmessage.RCodeNameError)
	}
	target, err := dnsmessage.NewName(known[0] + ".")
	if err != nil {
		return q.reply(dnsmessage.RCodeServerFailure)
	}
	return q.reply(dnsmessage.RCodeSuccess, q.record(time.Minute, &dnsmessage.PTRResource{PTR: target}))
}

// reverseAddr parses a name of in-addr.arpa or ip6.arpa.
func reverseAddr(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		labels := strings.Split(rest, ".")
		slices.Reverse(labels)
		addr, err := netip.ParseAddr(strings.Join(labels, "."))
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

// isForwarded reports whether queries for a type of record are forwarded to name
// servers. These are the types that programs use and that contain no addresses.
func isForwarded(kind dnsmessage.Type) bool {
	switch kind {
	case dnsmessage.TypeNS, dnsmessage.TypeCNAME, dnsmessage.TypeSOA, dnsmessage.TypePTR, dnsmessage.TypeMX,
		dnsmessage.TypeTXT, dnsmessage.TypeSRV, dnsmessage.TypeSVCB, dnsmessage.TypeHTTPS,
		typeNAPTR, typeSSHFP, typeTLSA, typeCAA:
		return true
	default:
		return false
	}
}

// answerOther asks the host's name servers for records other than addresses.
func (g *Gate) answerOther(ctx context.Context, q *query) []byte {
	if !isForwarded(q.question.Type) {
		return q.reply(dnsmessage.RCodeNotImplemented)
	}
	var id [2]byte
	_, _ = rand.Read(id[:]) // never fails
	message, err := q.forwardedQuery(binary.BigEndian.Uint16(id[:]))
	if err != nil {
		return q.reply(dnsmessage.RCodeServerFailure)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	reply, err := g.config.Exchange(ctx, message)
	if err != nil {
		return q.reply(dnsmessage.RCodeServerFailure)
	}
	code, records, err := readReply(reply, message, q)
	if err != nil {
		return q.reply(dnsmessage.RCodeServerFailure)
	}
	return q.reply(code, records...)
}

// readReply returns the records of an answer that have the requested type, and aliases.
// It removes addresses that were not asked for: the client has to ask for them, so that
// they are checked and remembered.
func readReply(reply, sent []byte, q *query) (dnsmessage.RCode, []dnsmessage.Resource, error) {
	var p dnsmessage.Parser
	h, err := p.Start(reply)
	if err != nil {
		return 0, nil, err
	}
	question, err := p.Question()
	if err != nil {
		return 0, nil, err
	}
	if !isReply(reply, sent) || !strings.EqualFold(question.Name.String(), q.question.Name.String()) || question.Type != q.question.Type {
		return 0, nil, errMore
	}
	if err := p.SkipAllQuestions(); err != nil {
		return 0, nil, err
	}
	var kept []dnsmessage.Resource
	for len(kept) < maxRecords {
		r, err := p.Answer()
		if err == dnsmessage.ErrSectionDone {
			return h.RCode, kept, nil
		}
		if err != nil {
			return 0, nil, err
		}
		if r.Header.Class != dnsmessage.ClassINET || r.Header.Type != q.question.Type && r.Header.Type != dnsmessage.TypeCNAME {
			continue
		}
		if stripHints(&r, q.name) {
			kept = append(kept, r)
		}
	}
	return h.RCode, kept, nil
}

// stripHints removes the parts of SVCB and HTTPS records that would bypass the gate:
// addresses, because their name would not be remembered, and the key that hides the
// server's name. It reports false for a record that leads to another name, or that is
// useless without these parts. The client then uses the plain address.
func stripHints(r *dnsmessage.Resource, name string) bool {
	var s *dnsmessage.SVCBResource
	switch body := r.Body.(type) {
	case *dnsmessage.HTTPSResource:
		s = &body.SVCBResource
	case *dnsmessage.SVCBResource:
		s = body
	default:
		return true
	}
	target := strings.TrimSuffix(s.Target.String(), ".")
	if normal, ok := judge.NormalName(target); s.Priority == 0 || target != "" && (!ok || normal != name) {
		return false
	}
	s.Params = slices.DeleteFunc(s.Params, func(p dnsmessage.SVCParam) bool { return !isHarmless(p.Key) })
	mandatory, _ := s.GetParam(dnsmessage.SVCParamMandatory)
	for ; len(mandatory) >= 2; mandatory = mandatory[2:] {
		if !isHarmless(dnsmessage.SVCParamKey(binary.BigEndian.Uint16(mandatory))) {
			return false
		}
	}
	return true
}

func isHarmless(key dnsmessage.SVCParamKey) bool {
	return key == dnsmessage.SVCParamMandatory || key == dnsmessage.SVCParamALPN || key == dnsmessage.SVCParamNoDefaultALPN || key == dnsmessage.SVCParamPort
}

const errNoServer = failure("the host's " + resolvConf + " names no name server")

// hostServers returns the addresses of the host's name servers.
func hostServers() ([]string, error) {
	text, err := os.ReadFile(resolvConf)
	if err != nil {
		return nil, err
	}
	servers := nameServers(string(text))
	if len(servers) == 0 {
		return nil, errNoServer
	}
	return servers, nil
}

// nameServers parses the name servers of a resolv.conf.
func nameServers(text string) []string {
	var servers []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" || len(servers) == maxServers {
			continue
		}
		if addr, err := netip.ParseAddr(words[1]); err == nil {
			servers = append(servers, netip.AddrPortFrom(addr, 53).String())
		}
	}
	return servers
}
