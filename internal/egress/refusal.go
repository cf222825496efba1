package egress

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
)

// A Refusal is a connection that was not made, with the reason. Its record is already
// written, unless a person may be asked: then the caller has to call Serve or Close.
type Refusal struct {
	gate   *Gate
	denial plan.Denial
	err    error
	// asks, unless nil, is the attempt that a person can be asked about. Nothing is
	// recorded yet: verdict is the refusal, and try makes the connection on yes.
	asks    *attempt
	verdict judge.NetDecision
	try     func() (*Flow, *Refusal)
}

// refuse denies the attempt because of a rule and ends its record, unless a person can be
// asked first.
func (a *attempt) refuse(v *judge.NetDecision) *Refusal {
	refused := &denied{verdict: *v, op: plan.OpConnect}
	if a.askable(v) {
		return &Refusal{gate: a.gate, denial: a.denial(refused), asks: a, verdict: *v}
	}
	d := a.deny(refused)
	a.finish(nil)
	return &Refusal{gate: a.gate, denial: d}
}

// fail ends an attempt that was allowed but failed.
func (a *attempt) fail(err error) *Refusal {
	a.finish(err)
	return &Refusal{gate: a.gate, err: err}
}

// Err is why an allowed connection could not be made. It is nil if a rule refused it.
func (r *Refusal) Err() error { return r.err }

// Denial is the denial as it was recorded, or the zero value if Err is not nil.
func (r *Refusal) Denial() plan.Denial { return r.denial }

// String returns what was refused and why.
func (r *Refusal) String() string {
	if r.err != nil {
		return cause(r.err)
	}
	return denials.Line(&r.denial)
}

// Answers reports whether the client should be accepted and passed to Serve, which
// explains the refusal. It should on ports where HTTP or TLS is usual. On other ports a
// reset is faster, and every client understands it. A client that waits for a person is
// accepted first: a kernel tries to connect for only two minutes, and only on an
// accepted connection is it noticed that the client gives up.
func (r *Refusal) Answers() bool { return r.asks != nil || r.explains() }

func (r *Refusal) explains() bool {
	return r.err == nil && r.denial.Protocol == "tcp" && slices.Contains(answeringPorts, r.denial.Port)
}

// answeringPorts are the ports where plain HTTP is usual, and those where TLS is.
var answeringPorts = []int{
	80, 81, 591, 1080, 3000, 3001, 3128, 4200, 5000, 5173, 8000, 8001, 8008, 8080, 8081, 8088, 8090, 8888, 9000, 9090,
	443, 465, 563, 636, 853, 989, 990, 993, 995, 8443, 9443,
}

// Serve explains the refusal to the client: an HTTP request gets 403 with a JSON body, a
// ClientHello the fatal alert access_denied, anything else a reset. Then it closes the
// connection. If a person is asked, the client waits for the answer, and on yes gets its
// connection.
func (r *Refusal) Serve(client net.Conn) {
	if !r.gate.begin(client) {
		_ = r.Close()
		return
	}
	defer r.gate.end(client)
	defer shut(client)
	in := bufio.NewReaderSize(client, readAhead)
	if r.asks != nil {
		r.serveDecided(client, in)
		return
	}
	r.explain(client, in)
}

// explain sends the client the reason of the refusal.
func (r *Refusal) explain(client net.Conn, in *bufio.Reader) {
	if !take(r.gate.tcp) {
		reset(client)
		return
	}
	defer give(r.gate.tcp)
	_ = client.SetDeadline(time.Now().Add(r.gate.limits.first))
	first, err := in.Peek(1)
	switch {
	case err != nil:
		reset(client)
	case first[0] == recordHandshake:
		r.gate.sendAlert(client)
	default:
		// Only the first line is needed, and it may be anything.
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) || !isRequestLine(line) {
			reset(client)
			return
		}
		r.send403(client, methodOf(line))
	}
}

// send403 answers a request and closes the connection.
func (r *Refusal) send403(client net.Conn, method string) {
	d := r.denial
	if d.Method == "" {
		d.Method = method
	}
	_ = client.SetWriteDeadline(time.Now().Add(r.gate.limits.first))
	body := encode(textOf(&d))
	_, _ = client.Write(response("403 Forbidden", body, method != "HEAD"))
	r.gate.closeSoftly(client)
}

// A refusalText is the body of a refusal.
type refusalText struct {
	Error  string `json:"error"`
	Host   string `json:"host"`
	Port   int    `json:"port"`
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	Rule   string `json:"rule"`
	// Subject is the entry that denies it, if there is one.
	Subject string `json:"subject,omitempty"`
	Origin  string `json:"origin"`
	Reason  string `json:"reason,omitempty"`
	Grant   string `json:"grant,omitempty"`
}

func textOf(d *plan.Denial) refusalText {
	return refusalText{
		Error: "denied by cloche", Host: d.Host, Port: d.Port, Method: d.Method, Path: d.Path,
		Rule: d.Rule, Subject: d.Subject, Origin: d.Origin.String(), Reason: d.Reason, Grant: runoption.Text(d.Fix...),
	}
}

// A failureText is the body of the answer for an allowed connection that failed.
type failureText struct {
	Error  string `json:"error"`
	Host   string `json:"host,omitempty"`
	Port   int    `json:"port,omitempty"`
	Reason string `json:"reason"`
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		// It contains only strings and numbers.
		panic(fmt.Sprintf("egress: a refusal cannot be encoded: %v", err))
	}
	return append(b, '\n')
}

// response returns a whole HTTP response that ends the connection.
func response(status string, body []byte, withBody bool) []byte {
	b := append([]byte(nil), "HTTP/1.1 "+status+"\r\nContent-Type: application/json\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"...)
	if withBody {
		b = append(b, body...)
	}
	return b
}

// sendAlert sends a TLS client the alert access_denied, and closes the connection.
func (g *Gate) sendAlert(client net.Conn) {
	_ = client.SetWriteDeadline(time.Now().Add(g.limits.linger))
	_, _ = client.Write(deniedAlert())
	g.closeSoftly(client)
}

// closeSoftly closes a connection so that the client still receives what was written.
// Closing it while bytes of the client are unread would reset it.
func (g *Gate) closeSoftly(client net.Conn) {
	closeWrite(client)
	_ = client.SetReadDeadline(time.Now().Add(g.limits.linger))
	_, _ = io.CopyN(io.Discard, client, 256<<10)
	shut(client)
}

// shut closes c and ignores the error.
func shut(c io.Closer) { c.Close() }

// closeWrite ends the direction to the peer, and leaves the other open.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// reset closes a connection with a reset.
func reset(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
	shut(c)
}
