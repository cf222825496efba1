package egress

import (
	"golang.org/x/net/dns/dnsmessage"
)

// EDNS options (RFC 6891, RFC 8914).
const (
	optionExtendedError = 15
	errorBlocked        = 15
	// maxExplain bounds the text of an extended error.
	maxExplain = 400
)

// rcodeBadVersion says that a version of EDNS is not known.
const rcodeBadVersion = dnsmessage.RCode(16)

// A query is one question of a client.
type query struct {
	id        uint16
	recursion bool
	question  dnsmessage.Question // as it was asked: clients check its letters (0x20)
	name      string              // in the form that rules are compared with; "" if it is no host's
	raw       string              // without the last dot, as it was asked
	edns      bool
	size      int // of an answer, at most
	// refuse is an answer that needs no look-up, 0 if there is none.
	refuse dnsmessage.RCode
}

// parseQuery reads a query. It reports false for what is to be left unanswered:
// what cannot be read as far as its question, and answers, to which an answer could go
// on for ever.
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
	q.readEDNS(&p)
	q.readName()
	if q.question.Class != dnsmessage.ClassINET && q.refuse == 0 {
		q.refuse = dnsmessage.RCodeRefused
	}
	return q, true
}

// readEDNS reads what follows the question: nothing, or one OPT record.
func (q *query) readEDNS(p *dnsmessage.Parser) {
	if _, err := p.AnswerHeader(); err != dnsmessage.ErrSectionDone {
		q.refuse = dnsmessage.RCodeFormatError
		return
	}
	if p.SkipAllAuthorities() != nil {
		q.refuse = dnsmessage.RCodeFormatError
		return
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			if err != dnsmessage.ErrSectionDone {
				q.refuse = dnsmessage.RCodeFormatError
			}
			return
		}
		if h.Type == dnsmessage.TypeOPT {
			if q.edns {
				q.refuse = dnsmessage.RCodeFormatError
				return
			}
			q.edns, q.size = true, min(max(int(h.Class), plainUDP), mostUDP)
			if h.TTL>>16&0xff != 0 {
				q.refuse = rcodeBadVersion
			}
		}
		if p.SkipAdditional() != nil {
			q.refuse = dnsmessage.RCodeFormatError
			return
		}
	}
}

func (q *query) readName() {
	q.raw = trimDot(q.question.Name.String())
	if name, ok := normalName(q.raw); ok {
		q.name = name
	}
}

// An answerer adds the records of an answer.
type answerer func(*dnsmessage.Builder) error

// reply builds an answer that holds what add adds, or if that does not fit,
// nothing and the mark that it was cut.
func (q *query) reply(code dnsmessage.RCode, add answerer) []byte {
	return q.explain(code, "", add)
}

// explain is reply with the reason of a refusal for clients that can show it.
func (q *query) explain(code dnsmessage.RCode, reason string, add answerer) []byte {
	b, err := q.build(code, reason, false, add)
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

func (q *query) build(code dnsmessage.RCode, reason string, cut bool, add answerer) ([]byte, error) {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{
		ID: q.id, Response: true, RecursionDesired: q.recursion, RecursionAvailable: true, Truncated: cut, RCode: code & 15,
	})
	b.EnableCompression()
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	if q.question.Name.Length > 0 {
		if err := b.Question(q.question); err != nil {
			return nil, err
		}
	}
	if err := b.StartAnswers(); err != nil {
		return nil, err
	}
	if add != nil {
		if err := add(&b); err != nil {
			return nil, err
		}
	}
	if q.edns {
		if err := addOPT(&b, code, reason); err != nil {
			return nil, err
		}
	}
	return b.Finish()
}

// addOPT adds the record by which EDNS is spoken, with the reason in it.
func addOPT(b *dnsmessage.Builder, code dnsmessage.RCode, reason string) error {
	if err := b.StartAdditionals(); err != nil {
		return err
	}
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(mostUDP, code, false); err != nil {
		return err
	}
	var options []dnsmessage.Option
	if reason != "" {
		text := reason[:min(len(reason), maxExplain)]
		options = append(options, dnsmessage.Option{Code: optionExtendedError, Data: append([]byte{0, errorBlocked}, text...)})
	}
	return b.OPTResource(h, dnsmessage.OPTResource{Options: options})
}
