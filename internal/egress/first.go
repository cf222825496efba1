package egress

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

// An opening is what a client said first.
type opening struct {
	class class
	data  []byte
	// sent is how many bytes of data went to the server already.
	sent  int
	hello hello
	// ended says that the client will say no more.
	ended bool
}

// firstRead is how much is read at once while a connection is told apart. It is
// small, because an idle connection holds it.
const firstRead = 4 << 10

const (
	errPieces = malformed("its first line comes in pieces")
	errNoEnd  = malformed("its first line has no end")
)

// A denied error is a refusal by rule of what the client said.
type denied struct {
	verdict plan.NetVerdict
	op      plan.Op
	// server is the name that was given to the server; method and path are
	// those of a request.
	server, method, path string
}

func (d *denied) Error() string { return d.verdict.Rule }

// readFirst reads as much of the client as it takes to tell the protocol, and for
// TLS the whole ClientHello. For the first byte it waits as long as the client
// likes: in some protocols the server speaks first.
//
// A text whose first line is not complete goes to the server as it comes: a
// protocol need not have lines. It stays under watch: if the line turns out to
// be a request, the server has not seen enough of it to act on, and never will.
func (f *Flow) readFirst(client net.Conn, ahead []byte) (opening, error) {
	o := opening{data: ahead}
	l := &f.attempt.gate.limits
	begun := time.Time{}
	for {
		done, err := o.decide()
		if done || err != nil {
			_ = client.SetReadDeadline(time.Time{})
			return o, err
		}
		if begun.IsZero() && len(o.data) > 0 {
			begun = time.Now()
		}
		switch {
		case begun.IsZero():
		case o.class == isTLS || isRecord(o.data[0]):
			_ = client.SetReadDeadline(begun.Add(l.first))
		case o.sent == 0 && mayBeMethod(o.data):
			_ = client.SetReadDeadline(begun.Add(l.line))
		default:
			if err := f.release(client, &o); err != nil {
				return o, err
			}
		}
		if err := f.readMore(client, &o); err != nil {
			return o, err
		}
		if o.ended {
			return o, nil
		}
	}
}

// decide classifies what is there. It reports false if more is needed.
func (o *opening) decide() (bool, error) {
	if len(o.data) == 0 {
		return false, nil
	}
	switch o.class = classify(o.data); o.class {
	case unsure:
		return false, nil
	case isTLS:
		var err error
		o.hello, err = readHello(o.data)
		if errors.Is(err, errMore) && len(o.data) <= maxHello {
			return false, nil
		}
		return true, err
	case isHTTP, isHTTP2:
		if o.sent > 0 {
			return true, errPieces
		}
	case opaque:
	}
	return true, nil
}

// release sends on what is there, although it is not classified yet.
func (f *Flow) release(client net.Conn, o *opening) error {
	_ = client.SetReadDeadline(time.Time{})
	err := f.sendFirst(o)
	if n := firstWord(o.data); n == len(o.data) {
		o.data = o.data[:min(n, maxMethod)] // it is still one word, however long
	}
	o.sent = len(o.data)
	return err
}

// readMore reads once. The end of the client's side before anything could be
// told makes the text what it is; a time-out releases it, unless it is TLS.
func (f *Flow) readMore(client net.Conn, o *opening) error {
	buffer := make([]byte, firstRead)
	n, err := client.Read(buffer)
	o.data = append(o.data, buffer[:n]...)
	switch {
	case n > 0 || err == nil:
		return nil
	case errors.Is(err, io.EOF):
		if o.class == isTLS {
			return errHello
		}
		if o.ended = true; isRequestLine(o.data) {
			return errNoEnd
		}
		o.class = opaque
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && o.class != isTLS && !isRecord(o.data[0]):
		return f.release(client, o)
	}
	return err
}

// judgeFirst judges the name in a ClientHello.
func (f *Flow) judgeFirst(o *opening) error {
	if o.class != isTLS {
		return nil
	}
	return f.judgeHello(o.hello)
}

func (f *Flow) judgeHello(h hello) error {
	judge, dest := f.attempt.judge(), f.attempt.dest
	if h.hidden && !judge.AnyServer(dest) {
		return hiddenName(h)
	}
	v := judge.Server(dest, h.serverName)
	if v.Allowed && v.HTTP {
		v = *unjudgeable("rules here are about single requests, and TLS hides them")
	}
	if !v.Allowed {
		return &denied{verdict: v, op: plan.OpConnect, server: h.serverName}
	}
	return nil
}

// hiddenName refuses a ClientHello whose real name may be encrypted.
func hiddenName(h hello) error {
	v := unjudgeable("the ClientHello may hide the name of another server (ECH): turn that off in the client")
	return &denied{verdict: *v, op: plan.OpConnect, server: h.serverName}
}

// refuseFirst ends a connection on which the client said what is refused.
func (f *Flow) refuseFirst(client net.Conn, o *opening, err error) {
	r, refused := f.refuse(err)
	if !refused {
		f.note(err)
		reset(client)
		return
	}
	reset(f.upstream)
	switch {
	case f.received.Load() > 0:
		reset(client)
	case o.class == isTLS:
		f.attempt.gate.sendAlert(client)
	case o.class == isHTTP:
		r.send403(client, methodOf(o.data))
	default:
		reset(client)
	}
}
