package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Flow is a connection that was judged by address and made. Relay or Close has
// to be called once.
type Flow struct {
	attempt  *attempt
	verdict  plan.NetVerdict
	upstream net.Conn

	sent, received atomic.Int64
	err            error // how it failed, set by one goroutine before ended
	once           sync.Once
}

// Close ends a flow whose client is gone before anything was relayed.
func (f *Flow) Close() error {
	f.finish()
	return nil
}

// finish closes the upstream connection and writes the record.
func (f *Flow) finish() {
	f.once.Do(func() {
		shut(f.upstream)
		a := f.attempt
		a.conn.Sent, a.conn.Received = f.sent.Load(), f.received.Load()
		a.finish(f.err)
		give(a.gate.tcp)
		a.gate.end(f.upstream)
	})
}

// Relay carries the connection until both directions have ended, and closes both
// ends. The server's bytes flow at once; the client's first ones are held
// until they are judged.
func (f *Flow) Relay(client net.Conn) {
	defer f.finish()
	g := f.attempt.gate
	if !g.begin(client) {
		return
	}
	defer g.end(client)
	f.relay(client, nil)
}

// relay is Relay with bytes of the client that were read ahead.
func (f *Flow) relay(client net.Conn, ahead []byte) {
	defer f.finish()
	defer shut(client)
	defer context.AfterFunc(f.attempt.ctx, func() { shut(client) })()
	if f.verdict.HTTP {
		f.relayHTTP(client, ahead)
		return
	}
	d := f.startDown(client)
	first, err := f.judgedFirst(client, ahead)
	switch {
	case err != nil:
		// If the client was closed because the server failed, that is the cause.
		if ended := d.stop(); errors.Is(err, net.ErrClosed) && ended != nil {
			err = ended
		}
		f.refuseFirst(client, &first, err)
	case first.class == isHTTP:
		_ = d.stop()
		f.relayHTTP(client, first.data)
	default:
		f.relayRaw(client, &first, d)
	}
}

// judgedFirst reads what the client says first, and judges it. Where any server may be
// asked for there is nothing to compare, and no reason to be strict.
func (f *Flow) judgedFirst(client net.Conn, ahead []byte) (opening, error) {
	if f.attempt.judge().AnyServer(f.attempt.dest) {
		return opening{class: opaque, data: ahead}, nil
	}
	first, err := f.readFirst(client, ahead)
	if err == nil {
		err = f.judgeFirst(&first)
	}
	return first, err
}

// A down is the copying from the server to the client.
type down struct {
	flow *Flow
	done chan error // nil: the server ended its side
	// start tells what the server said first, once that is known. It is closed
	// when the copying ends.
	start chan serverStart
}

func (f *Flow) startDown(client net.Conn) *down {
	d := &down{f, make(chan error, 1), make(chan serverStart, 1)}
	go func() {
		err := d.copyStart(client)
		if err == nil {
			var n int64
			n, err = transfer(client, f.upstream)
			f.received.Add(n)
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = nil
			closeWrite(client)
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			// The client may be waiting for the server, and must not for ever.
			abort(client, err)
		}
		close(d.start)
		d.done <- err
	}()
	return d
}

// copyStart copies the first bytes of the server until it is known what they are.
func (d *down) copyStart(client net.Conn) error {
	buffer := make([]byte, firstRead)
	var seen []byte
	for {
		n, err := d.flow.upstream.Read(buffer)
		if n > 0 {
			if n, err := client.Write(buffer[:n]); err != nil {
				d.flow.received.Add(int64(n))
				return err
			}
			d.flow.received.Add(int64(n))
			seen = append(seen, buffer[:min(n, helloRandomEnd)]...)
			if start := startOf(seen); start != startUnknown {
				d.start <- start
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// stop ends the copying, and leaves the connection as it is: every byte that was
// read was written. It returns why the copying had ended before, if it had.
func (d *down) stop() error {
	_ = d.flow.upstream.SetReadDeadline(time.Unix(1, 0))
	err := <-d.done
	_ = d.flow.upstream.SetReadDeadline(time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// relayRaw carries a protocol in which the server is not listened to.
func (f *Flow) relayRaw(client net.Conn, first *opening, d *down) {
	var err error
	switch first.class {
	case isTLS:
		err = f.sendTLS(client, first, d)
	case isHTTP2:
		err = f.sendHTTP2(newStream(client, first.data))
	default:
		err = f.sendRaw(client, first)
	}
	if _, refused := f.refuse(err); refused {
		reset(f.upstream)
		reset(client)
		<-d.done
		return
	}
	if err == nil {
		closeWrite(f.upstream)
	} else {
		abort(f.upstream, err)
	}
	close(f.attempt.flushed)
	if downErr := <-d.done; err == nil || errors.Is(err, net.ErrClosed) {
		err = downErr
	}
	f.note(err)
}

// sendRaw carries the client's side of a protocol that the gate does not know.
func (f *Flow) sendRaw(client net.Conn, first *opening) error {
	if err := f.sendFirst(first); err != nil || first.ended {
		return err
	}
	n, err := transfer(f.upstream, client)
	f.sent.Add(n)
	return err
}

// sendFirst sends what was held and is not sent yet.
func (f *Flow) sendFirst(first *opening) error {
	if first.sent == len(first.data) {
		return nil
	}
	n, err := f.upstream.Write(first.data[first.sent:])
	f.sent.Add(int64(n))
	return err
}

// note keeps how the connection failed. That one end closed it is no failure.
func (f *Flow) note(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) && f.err == nil {
		f.err = err
	}
}

// abort ends a connection because the other one failed: by a reset, if that was
// how it failed, so that a cut stream does not look like a complete one.
func abort(c net.Conn, err error) {
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ETIMEDOUT) {
		reset(c)
		return
	}
	shut(c)
}

// refuse records an error that is a refusal of what the client asks for on the
// connection. It reports whether it is one.
func (f *Flow) refuse(err error) (*Refusal, bool) {
	var d *denied
	switch {
	case errors.As(err, &d):
	case errors.Is(err, errHello), isMalformed(err):
		d = &denied{verdict: *unjudgeable(err.Error()), op: plan.OpConnect}
	default:
		return nil, false
	}
	return &Refusal{gate: f.attempt.gate, denial: f.attempt.deny(d)}, true
}

// unjudgeable is the verdict on what cannot be judged.
func unjudgeable(reason string) *plan.NetVerdict {
	return &plan.NetVerdict{Verdict: plan.Verdict{Rule: plan.RuleNetworkProtocol, Reason: reason,
		Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: what cannot be judged is refused"}}}
}
