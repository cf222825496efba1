package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/cloche-dev/cloche/internal/judge"
)

const (
	// maxQuery bounds a query. It has one name and a few options.
	maxQuery = 1232
	// plainUDP is the largest answer for a client without EDNS (RFC 1035).
	plainUDP = 512
	// mostUDP is the largest answer in one datagram: it fits into one packet on
	// nearly every network.
	mostUDP = 1232
	// queriesPerConn bounds the queries of one TCP connection in progress.
	queriesPerConn = 8

	// EDNS options (RFC 6891, RFC 8914).
	optionExtendedError = 15
	errorBlocked        = 15
	// maxExplain bounds the text of an extended error.
	maxExplain = 400
	// rcodeBadVersion reports an unknown version of EDNS.
	rcodeBadVersion = dnsmessage.RCode(16)
)

// ServeDNS answers queries until the gate or both listeners are closed. It closes
// the listeners. Either may be nil.
func (g *Gate) ServeDNS(udp net.PacketConn, tcp net.Listener) {
	var both sync.WaitGroup
	if udp != nil {
		both.Go(func() { g.serveUDP(udp) })
	}
	if tcp != nil {
		both.Go(func() { g.accept(tcp, g.dnsConns, g.serveDNSConn) })
	}
	both.Wait()
}

// serveUDP answers queries. If too many are in progress, new ones are dropped, as
// on a network: clients ask again.
func (g *Gate) serveUDP(conn net.PacketConn) {
	if !g.begin(conn) {
		return
	}
	defer g.end(conn)
	defer shut(conn)
	var work sync.WaitGroup
	defer work.Wait()
	buffer := make([]byte, maxQuery+1)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || g.ctx.Err() != nil {
				return
			}
			continue // an ICMP error for an earlier answer
		}
		if n > maxQuery || !take(g.queries) {
			continue
		}
		query := append([]byte(nil), buffer[:n]...)
		work.Go(func() {
			defer give(g.queries)
			client := dnsClient{from: AddrPortOf(from), to: AddrPortOf(conn.LocalAddr()), protocol: "udp"}
			if answer := g.answer(client, query); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		})
	}
}

// serveDNSConn answers the queries of one TCP connection, in the order in which the
// answers are ready.
func (g *Gate) serveDNSConn(conn net.Conn) {
	client := dnsClient{from: AddrPortOf(conn.RemoteAddr()), to: AddrPortOf(conn.LocalAddr()), protocol: "tcp"}
	places := make(chan struct{}, queriesPerConn)
	var work sync.WaitGroup
	defer work.Wait()
	var writing sync.Mutex
	for {
		_ = conn.SetReadDeadline(time.Now().Add(g.limits.idle))
		query, err := readMessage(conn)
		if err != nil || len(query) > maxQuery {
			return
		}
		places <- struct{}{}
		work.Go(func() {
			defer give(places)
			select {
			case g.queries <- struct{}{}:
				defer give(g.queries)
			case <-g.ctx.Done():
				return
			}
			if answer := g.answer(client, query); answer != nil {
				writing.Lock()
				defer writing.Unlock()
				_ = conn.SetWriteDeadline(time.Now().Add(g.limits.first))
				_ = writeMessage(conn, answer)
			}
		})
	}
}

// readMessage reads one DNS message from a stream.
func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

// writeMessage writes one DNS message to a stream.
func writeMessage(w io.Writer, message []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...))
	return err
}

// A dnsClient is the sender of a query.
type dnsClient struct {
	from, to netip.AddrPort
	protocol string
}

// AddrPortOf is the address of one end of a TCP or UDP socket.
func AddrPortOf(a net.Addr) netip.AddrPort {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.UDPAddr:
		ap = a.AddrPort()
	case *net.TCPAddr:
		ap = a.AddrPort()
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// answer answers one query. It returns nil for a query that gets no answer.
func (g *Gate) answer(client dnsClient, query []byte) []byte {
	q, ok := parseQuery(query)
	if !ok {
		return nil
	}
	if client.protocol == "tcp" {
		q.size = 65535
	}
	if q.refuse != 0 {
		return q.reply(q.refuse)
	}
	return g.answerQuestion(g.ctx, client, q)
}

// A query is one question of a client.
type query struct {
	id        uint16
	recursion bool
	question  dnsmessage.Question // as it was asked: clients compare the case of its letters (0x20)
	name      string              // normalized for the rules; "" if it is not a host name
	raw       string              // as it was asked, without the last dot
	edns      bool
	size      int // the largest answer
	// refuse is the answer if no look-up is needed, otherwise 0.
	refuse dnsmessage.RCode
}

// parseQuery reads a query. It reports false for messages that get no answer: those
// whose question cannot be read, and answers, because two servers could answer each
// other forever.
func parseQuery(b []byte) (*query, bool) {
	var p dnsmessage.Parser
	h, err := p.Start(b)
	if err != nil || h.Response {
		return nil, false
	}
	q := &query{id: h.ID, recursion: h.RecursionDesired, size: plainUDP}
	if h.OpCode != 0 {
		q.refuse = dnsmessage.RCodeNotImplemented
		return q, true
	}
	q.question, err = p.Question()
	if err != nil {
		return nil, false
	}
	if _, err := p.Question(); err != dnsmessage.ErrSectionDone {
		q.refuse = dnsmessage.RCodeFormatError
		return q, true
	}
	q.refuse = q.readEDNS(&p)
	q.raw = strings.TrimSuffix(q.question.Name.String(), ".")
	if name, ok := judge.NormalName(q.raw); ok {
		q.name = name
	}
	if q.question.Class != dnsmessage.ClassINET && q.refuse == 0 {
		q.refuse = dnsmessage.RCodeRefused
	}
	return q, true
}

// readEDNS reads what follows the question: nothing, or one OPT record. It returns
// the error code to answer with, or 0.
func (q *query) readEDNS(p *dnsmessage.Parser) (refuse dnsmessage.RCode) {
	if _, err := p.AnswerHeader(); err != dnsmessage.ErrSectionDone {
		return dnsmessage.RCodeFormatError
	}
	if p.SkipAllAuthorities() != nil {
		return dnsmessage.RCodeFormatError
	}
	for {
		h, err := p.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone {
			return refuse
		}
		if err != nil || h.Type == dnsmessage.TypeOPT && q.edns {
			return dnsmessage.RCodeFormatError
		}
		if h.Type == dnsmessage.TypeOPT {
			q.edns, q.size = true, min(max(int(h.Class), plainUDP), mostUDP)
			if h.TTL>>16&0xff != 0 {
				refuse = rcodeBadVersion
			}
		}
		if p.SkipAdditional() != nil {
			return dnsmessage.RCodeFormatError
		}
	}
}

// reply builds an answer with the records. If they do not fit, it has none and is
// marked as truncated.
func (q *query) reply(code dnsmessage.RCode, records ...dnsmessage.Resource) []byte {
	return q.explain(code, "", records...)
}

// explain is reply with the reason of a refusal, for clients that can show it.
func (q *query) explain(code dnsmessage.RCode, reason string, records ...dnsmessage.Resource) []byte {
	b, err := q.build(code, reason, false, records)
	if err != nil {
		b, err = q.build(dnsmessage.RCodeServerFailure, "", false, nil)
	}
	if err == nil && len(b) > q.size {
		b, err = q.build(code, "", true, nil)
	}
	if err != nil {
		return nil
	}
	return b
}

func (q *query) build(code dnsmessage.RCode, reason string, truncated bool, records []dnsmessage.Resource) ([]byte, error) {
	m := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: q.id, Response: true, RecursionDesired: q.recursion, RecursionAvailable: true, Truncated: truncated, RCode: code & 15,
		},
		Answers: records,
	}
	if q.question.Name.Length > 0 {
		m.Questions = []dnsmessage.Question{q.question}
	}
	if q.edns {
		opt, err := optRecord(code, reason)
		if err != nil {
			return nil, err
		}
		m.Additionals = []dnsmessage.Resource{opt}
	}
	return m.Pack()
}

// optRecord returns the EDNS record of an answer. If there is a reason, the record
// contains it as an extended error.
func optRecord(code dnsmessage.RCode, reason string) (dnsmessage.Resource, error) {
	body := &dnsmessage.OPTResource{}
	if reason != "" {
		text := reason[:min(len(reason), maxExplain)]
		body.Options = []dnsmessage.Option{{Code: optionExtendedError, Data: append([]byte{0, errorBlocked}, text...)}}
	}
	r := dnsmessage.Resource{Body: body}
	err := r.Header.SetEDNS0(mostUDP, code, false)
	return r, err
}

// record makes a record that answers the question.
func (q *query) record(ttl time.Duration, body dnsmessage.ResourceBody) dnsmessage.Resource {
	h := dnsmessage.ResourceHeader{Name: q.question.Name, Class: dnsmessage.ClassINET, TTL: uint32(min(ttl, time.Hour) / time.Second)}
	return dnsmessage.Resource{Header: h, Body: body}
}

// addressRecords returns records for the addresses of the family that was asked for.
func (q *query) addressRecords(addrs []netip.Addr, ttl time.Duration) (records []dnsmessage.Resource) {
	for _, addr := range addrs {
		switch {
		case addr.Is4() && q.question.Type == dnsmessage.TypeA:
			records = append(records, q.record(ttl, &dnsmessage.AResource{A: addr.As4()}))
		case addr.Is6() && q.question.Type == dnsmessage.TypeAAAA:
			records = append(records, q.record(ttl, &dnsmessage.AAAAResource{AAAA: addr.As16()}))
		}
	}
	return records
}

// forwardedQuery returns the query that is sent to a name server of the host. It is a
// new one, with an identifier that cannot be guessed, the name in lower case, and the
// type.
func (q *query) forwardedQuery(id uint16) ([]byte, error) {
	name, err := dnsmessage.NewName(q.name + ".")
	if err != nil {
		return nil, err
	}
	opt, err := optRecord(dnsmessage.RCodeSuccess, "")
	if err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header:      dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions:   []dnsmessage.Question{{Name: name, Type: q.question.Type, Class: dnsmessage.ClassINET}},
		Additionals: []dnsmessage.Resource{opt},
	}
	return m.Pack()
}

// isReply reports whether a message has the identifier of the query and is an answer.
func isReply(b, query []byte) bool {
	return len(b) >= 12 && b[0] == query[0] && b[1] == query[1] && b[2]&0x80 != 0
}

// hostExchange sends a query to the host's name servers, one after the other, by UDP,
// and by TCP if the answer was truncated. The kernel chooses a new port each time, so
// a forged answer has to guess the port and the identifier.
func hostExchange(ctx context.Context, query []byte) ([]byte, error) {
	servers, err := hostServers()
	if err != nil {
		return nil, err
	}
	for _, server := range servers {
		var answer []byte
		if answer, err = askServer(ctx, server, query); err == nil {
			return answer, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

func askServer(ctx context.Context, server string, query []byte) ([]byte, error) {
	answer, err := askOver(ctx, "udp", server, query)
	if err == nil && answer[2]&2 != 0 { // truncated
		return askOver(ctx, "tcp", server, query)
	}
	return answer, err
}

// askOver returns the first message with the identifier of the query. The caller
// checks that it is about the same question.
func askOver(ctx context.Context, network, server string, query []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, serverWait)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer shut(conn)
	defer context.AfterFunc(ctx, func() { shut(conn) })()
	if network == "tcp" {
		if err := writeMessage(conn, query); err != nil {
			return nil, err
		}
		answer, err := readMessage(conn)
		if err == nil && !isReply(answer, query) {
			err = errors.New("the name server answers another question")
		}
		return answer, err
	}
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	buffer := make([]byte, 4096)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return nil, err
		}
		if isReply(buffer[:n], query) {
			return buffer[:n], nil
		}
	}
}
