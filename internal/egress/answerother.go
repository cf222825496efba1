package egress

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/cloche-dev/cloche/plan"
)

// Types of records that dnsmessage has no names for.
const (
	typeNAPTR = dnsmessage.Type(35)
	typeSSHFP = dnsmessage.Type(44)
	typeTLSA  = dnsmessage.Type(52)
	typeCAA   = dnsmessage.Type(257)
)

// forwards reports whether records of a type are asked for upstream: those that
// programs use, and that hold no addresses.
func forwards(kind dnsmessage.Type) bool {
	switch kind {
	case dnsmessage.TypeNS, dnsmessage.TypeCNAME, dnsmessage.TypeSOA, dnsmessage.TypePTR, dnsmessage.TypeMX,
		dnsmessage.TypeTXT, dnsmessage.TypeSRV, dnsmessage.TypeSVCB, dnsmessage.TypeHTTPS,
		typeNAPTR, typeSSHFP, typeTLSA, typeCAA:
		return true
	default:
		return false
	}
}

// answerOther asks upstream for records other than addresses. The query is a new
// one that has nothing of the client's but name and type.
func (g *Gate) answerOther(ctx context.Context, q *query) []byte {
	if !forwards(q.question.Type) {
		return q.reply(dnsmessage.RCodeNotImplemented, nil)
	}
	message, err := forwardedQuery(q)
	if err != nil {
		return q.reply(dnsmessage.RCodeServerFailure, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	reply, err := g.config.Exchange(ctx, message)
	if err != nil {
		return q.reply(dnsmessage.RCodeServerFailure, nil)
	}
	code, records, err := readReply(reply, message, q)
	if err != nil {
		return q.reply(dnsmessage.RCodeServerFailure, nil)
	}
	return q.reply(code, func(b *dnsmessage.Builder) error {
		for _, r := range records {
			if err := addRecord(b, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// forwardedQuery has an identifier that cannot be guessed, and the name in lower case.
func forwardedQuery(q *query) ([]byte, error) {
	name, err := dnsmessage.NewName(q.name + ".")
	if err != nil {
		return nil, err
	}
	var id [2]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: binary.BigEndian.Uint16(id[:]), RecursionDesired: true})
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	if err := b.Question(dnsmessage.Question{Name: name, Type: q.question.Type, Class: dnsmessage.ClassINET}); err != nil {
		return nil, err
	}
	if err := b.StartAdditionals(); err != nil {
		return nil, err
	}
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(mostUDP, dnsmessage.RCodeSuccess, false); err != nil {
		return nil, err
	}
	if err := b.OPTResource(h, dnsmessage.OPTResource{}); err != nil {
		return nil, err
	}
	return b.Finish()
}

// maxRecords bounds what is taken over of one answer.
const maxRecords = 256

// readReply takes over the records of an answer that are of the type that was
// asked for, and aliases. Addresses beside them are left out: where a
// name leads has to be asked for, so that it is judged and remembered.
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

// stripHints takes out of SVCB and HTTPS records what would lead past the gate:
// addresses that nothing remembers the name of, and the key for hiding the
// server's name. A record that leads to another name, or cannot do without
// these, is dropped: the client then uses the plain address.
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
	target := trimDot(s.Target.String())
	if normal, ok := normalName(target); s.Priority == 0 || target != "" && (!ok || normal != name) {
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

// addRecord adds a record of any of the types that are taken over.
func addRecord(b *dnsmessage.Builder, r dnsmessage.Resource) error {
	switch body := r.Body.(type) {
	case *dnsmessage.CNAMEResource:
		return b.CNAMEResource(r.Header, *body)
	case *dnsmessage.NSResource:
		return b.NSResource(r.Header, *body)
	case *dnsmessage.SOAResource:
		return b.SOAResource(r.Header, *body)
	case *dnsmessage.PTRResource:
		return b.PTRResource(r.Header, *body)
	case *dnsmessage.MXResource:
		return b.MXResource(r.Header, *body)
	case *dnsmessage.TXTResource:
		return b.TXTResource(r.Header, *body)
	case *dnsmessage.SRVResource:
		return b.SRVResource(r.Header, *body)
	case *dnsmessage.SVCBResource:
		return b.SVCBResource(r.Header, *body)
	case *dnsmessage.HTTPSResource:
		return b.HTTPSResource(r.Header, *body)
	case *dnsmessage.UnknownResource:
		return b.UnknownResource(r.Header, *body)
	}
	return nil
}

func trimDot(s string) string { return strings.TrimSuffix(s, ".") }

func normalName(s string) (string, bool) { return plan.NormalName(s) }
