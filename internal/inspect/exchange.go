package inspect

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloche-dev/cloche/internal/judge"
)

// An exchange is one request while it is carried.
type exchange struct {
	Exchange
	*session
	secrets bool // there is something to guard
	close   bool // the request is the last one of its connection
	// spots and members are the placeholders that are replaced, signer the signature that
	// is, whole a body with members.
	spots   []spot
	members []member
	whole   []byte
	signer  *signer
	holds   bool // a place among the buffered bodies
	// refused is why a request was ended after a part of it was sent.
	refused atomic.Pointer[denial]
	// sent and received count from the goroutines that copy.
	sent, received atomic.Int64
}

type exchangeKey struct{}

// serveHTTP carries one request and its answer.
func (s *session) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.begin() {
		panic(http.ErrAbortHandler)
	}
	defer s.handlers.Done()
	s.requests.Add(1)
	x := &exchange{session: s, secrets: s.inspector.guard != nil}
	x.Host, x.Port, x.Method, x.Path, x.Start = s.host, s.port, r.Method, r.URL.EscapedPath(), time.Now()
	defer x.record()
	defer x.release()
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if d := x.prepare(r); d != nil {
		x.refuse(w, r, d)
		return
	}
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// A server may answer before it has read the body.
		_ = http.NewResponseController(w).EnableFullDuplex() // it can with HTTP/1
	}
	defer func() {
		if p := recover(); p != nil {
			// Before net/http closes the connection, it reads a part of the body that is
			// left. A client that is not sending would hold it.
			_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
			panic(p)
		}
	}()
	s.inspector.proxies[r.ProtoMajor-1].ServeHTTP(w, r)
}

// refuse answers the client, and reports a misuse.
func (x *exchange) refuse(w http.ResponseWriter, r *http.Request, d *denial) {
	x.Status, x.Refused, x.Err = d.status, d.status != http.StatusBadGateway, d
	d.send(w, r)
	x.report(d)
}

// report calls Config.Misuse, once for each denial.
func (x *exchange) report(d *denial) {
	if d.misuse != nil && x.inspector.config.Misuse != nil && d.reported.CompareAndSwap(false, true) {
		x.inspector.config.Misuse(x.session.ctx, *d.misuse)
	}
}

// record writes the record of the exchange.
func (x *exchange) record() {
	if record := x.inspector.config.Record; record != nil {
		if d := x.refused.Load(); d != nil {
			x.Refused, x.Err = true, d
		}
		var d *denial
		var judged *Refusal
		if errors.As(x.Err, &d) {
			x.Reported = d.misuse != nil || errors.As(d.cause, &judged)
		}
		x.End, x.Sent, x.Received = time.Now(), x.sent.Load(), x.received.Load()
		record(x.session.ctx, x.Exchange)
	}
}

// prepare checks a request, and puts values in the place of placeholders. After it, the
// request is ready to be sent.
func (x *exchange) prepare(r *http.Request) *denial {
	if r.URL.Opaque != "" || r.URL.User != nil {
		return x.deny(http.StatusBadRequest, "", "the target of the request is neither a path nor a URL of this host")
	}
	own := sameHost(r.Host, x.host, x.port)
	found := x.survey(r, own)
	if !own {
		d := x.deny(http.StatusMisdirectedRequest, ruleRequest, "the connection is to "+x.host+", and the request is for "+visible(r.Host)+"; send it on a connection of its own")
		if found != nil {
			if d.misuse = found.misuse; d.misuse != nil {
				d.misuse.Foreign = true
			}
		}
		return d
	}
	if found != nil {
		return found
	}
	if d := x.judge(r); d != nil {
		return d
	}
	if x.signer != nil {
		if d := x.signer.verify(x, r); d != nil {
			return d
		}
	}
	cleanUpgrade(r, x.secrets)
	if x.secrets {
		limitCoding(r.Header)
		if d := x.guardBody(r); d != nil {
			return d
		}
		if d := x.fill(r); d != nil {
			return d
		}
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &counted{r.Body, &x.sent}
	}
	return nil
}

// judge asks the rules about a request, by the path that will be sent.
func (x *exchange) judge(r *http.Request) *denial {
	if r.Method == http.MethodConnect {
		return x.deny(http.StatusForbidden, ruleRequest, "CONNECT asks the server to be a proxy, and what goes through one cannot be judged")
	}
	c := &x.inspector.config
	if c.Judge == nil {
		return nil
	}
	q := Request{Host: x.host, Port: x.port, Method: r.Method, Path: r.URL.Path, Target: r.URL.RequestURI()}
	if c.Lenient == nil || !c.Lenient(r.Context(), x.host, x.port) {
		full, _, bad := judge.PathReadings(q.Target)
		if bad != "" {
			return x.deny(http.StatusForbidden, ruleRequest, "the path "+visible(r.URL.EscapedPath())+" "+bad)
		}
		if why := ambiguous(r.Header, x.host, x.port); why != "" {
			return x.deny(http.StatusForbidden, ruleRequest, why)
		}
		q.Path = full
		// Servers that do not read the body of a request would take it for the next one.
		x.close = r.ProtoMajor == 1 && r.ContentLength != 0
	}
	if err := c.Judge(r.Context(), q); err != nil {
		return x.judged(err)
	}
	return nil
}

// ambiguous returns why servers could read another request from the fields than the one
// that is judged, or "".
func ambiguous(h http.Header, host string, port uint16) string {
	for name, values := range h {
		if means, ok := judge.FramingAlias(name); ok {
			return "the field " + visible(name) + " is another spelling of " + means
		}
		if judge.OverridesRequest(name) {
			return "servers may take another method or path from the field " + visible(name) + "; send the request without it"
		}
		for _, v := range values {
			if judge.OverridesHost(name, v) && !sameHost(v, host, port) {
				return "servers may take another host from the field " + visible(name) + "; send the request without it"
			}
		}
	}
	return ""
}

// sameHost reports whether the host of a request, with or without a port, is the host of
// the connection.
func sameHost(named, host string, port uint16) bool {
	name := named
	if h, p, err := net.SplitHostPort(named); err == nil {
		if p != strconv.Itoa(int(port)) {
			return false
		}
		name = h
	} else {
		name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	}
	if a, err := netip.ParseAddr(host); err == nil {
		b, err := netip.ParseAddr(name)
		return err == nil && a == b
	}
	return normalHost(name) == host
}

// cleanUpgrade removes an offer to go on in HTTP/2 or TLS, which would hide what follows.
// guarded also removes the compression of WebSockets, so that messages can be searched.
func cleanUpgrade(r *http.Request, guarded bool) {
	offers := r.Header.Values("Upgrade")
	hides := slices.ContainsFunc(strings.Split(strings.ToLower(strings.Join(offers, ",")), ","), func(offer string) bool {
		offer = strings.TrimSpace(offer)
		return strings.HasPrefix(offer, "h2") || strings.HasPrefix(offer, "http/") || strings.HasPrefix(offer, "tls")
	})
	if hides || len(offers) > 1 || r.ContentLength != 0 {
		r.Header.Del("Upgrade")
		r.Header.Del("Http2-Settings")
	}
	if guarded {
		r.Header.Del("Sec-Websocket-Extensions")
	}
}

// newProxy makes what carries requests and answers. The request was changed before.
func newProxy(buffer int) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:      roundTripper{},
		FlushInterval:  -1,
		BufferPool:     newBuffers(buffer),
		ErrorLog:       log.New(io.Discard, "", 0),
		Rewrite:        rewrite,
		ModifyResponse: func(res *http.Response) error { return exchangeOf(res.Request.Context()).answer(res) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			exchangeOf(r.Context()).fail(w, r, err)
		},
	}
}

func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// A roundTripper sends a request to the server of its session.
type roundTripper struct{}

func (roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	return exchangeOf(r.Context()).upstream.RoundTrip(r)
}

// rewrite undoes what ReverseProxy changes and a client does not expect: the request goes
// out as it came.
func rewrite(p *httputil.ProxyRequest) {
	x := exchangeOf(p.In.Context())
	p.Out.URL.Scheme, p.Out.URL.Host = "https", x.host
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	p.Out.Host = p.In.Host
	p.Out.Trailer = p.In.Trailer
	p.Out.Close = x.close
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := p.In.Header[name]; ok {
			p.Out.Header[name] = values
		}
	}
	if _, ok := p.In.Header["User-Agent"]; !ok {
		p.Out.Header["User-Agent"] = nil
	}
}

// answer changes the server's answer into the client's.
func (x *exchange) answer(res *http.Response) error {
	x.Status = res.StatusCode
	search := x.inspector.values.search()
	cleanFields(res.Header, search)
	if res.StatusCode == http.StatusSwitchingProtocols {
		return x.tunnel(res, search)
	}
	if res.Body == nil || res.Body == http.NoBody {
		return nil
	}
	res.Body = &answered{counted{res.Body, &x.received}, x}
	if search == nil || res.Request.Method == http.MethodHead {
		return nil
	}
	return x.scrub(res, search)
}

// An answered body is that of an answer. It does not look complete if the request was ended
// for its own body: the server may have taken what it got for everything.
type answered struct {
	counted
	x *exchange
}

func (a *answered) Read(b []byte) (int, error) {
	n, err := a.counted.Read(b)
	if d := a.x.refused.Load(); d != nil && err == io.EOF {
		err = d
	}
	return n, err
}

// cleanFields removes from the fields of an answer what the client must not get.
func cleanFields(h http.Header, search *matcher) {
	h.Del("Alt-Svc") // it would lead the client to HTTP/3, which is not inspected
	scrubFields(h, search)
}

// fail answers a request that the server did not answer.
func (x *exchange) fail(w http.ResponseWriter, r *http.Request, err error) {
	if d := x.refused.Load(); d != nil {
		x.refuse(w, r, d)
		return
	}
	if isCancelled(r.Context(), err) || errors.Is(err, errKept) {
		x.Err = err
		panic(http.ErrAbortHandler)
	}
	// No error of net/http has a value in it. The search is for those of the future.
	reason := x.inspector.values.search().replace(err.Error())
	var up *UpstreamError
	if !errors.As(err, &up) {
		reason = x.host + " did not answer: " + reason
	}
	x.refuse(w, r, x.failed(reason, nil))
}

// Every answer that is open has a buffer. One as long as a record of TLS is as fast as
// longer ones; with HTTP/2, which flushes each frame, half of it is.
const (
	copyBuffer1 = 16 << 10
	copyBuffer2 = 8 << 10
)

// buffers are for copying bodies.
type buffers struct{ pool sync.Pool }

func newBuffers(size int) *buffers {
	return &buffers{sync.Pool{New: func() any { b := make([]byte, size); return &b }}}
}

func (b *buffers) Get() []byte  { return *b.pool.Get().(*[]byte) }
func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
