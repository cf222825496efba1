package inspect

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	// maxWhole is the size up to which a body of known length is searched before anything
	// of the request is sent.
	maxWhole = 16 << 10
	// maxJSON bounds bodies in which a member may be replaced.
	maxJSON = 1 << 20
)

// guardBody searches the body of a request for placeholders, before it is sent if it is
// small, and otherwise while it is sent. The request then ends before a placeholder is
// complete.
func (x *exchange) guardBody(r *http.Request) *denial {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	if x.inspector.json && isJSON(r.Header) {
		if done, d := x.surveyJSON(r); done || d != nil {
			return d
		}
	}
	hit := func(of int) error {
		d := x.misused(of, "the body")
		x.abort(d)
		return d
	}
	body := r.Body
	f := &filter{src: body, matcher: x.inspector.guard, hit: hit, end: func() error { return x.guardTrailer(r) }}
	r.Body = &readCloser{f, body}
	if r.ContentLength > 0 && r.ContentLength <= maxWhole && r.Header.Get("Expect") == "" {
		whole, err := io.ReadAll(f)
		if d := x.refused.Load(); d != nil {
			return d
		}
		if err != nil {
			return x.unread(err)
		}
		r.Body = &readCloser{bytes.NewReader(whole), body}
	}
	return nil
}

// A readCloser reads from one and closes another.
type readCloser struct {
	io.Reader
	io.Closer
}

// unread is for a body that the client did not send to its end.
func (x *exchange) unread(err error) *denial {
	d := x.deny(http.StatusBadRequest, "", "the body of the request could not be read")
	d.cause = err
	return d
}

// abort remembers why a request ends that has begun, and reports it.
func (x *exchange) abort(d *denial) {
	if x.refused.CompareAndSwap(nil, d) {
		x.report(d)
	}
}

// guardTrailer searches the fields that came after a body.
func (x *exchange) guardTrailer(r *http.Request) error {
	for name, values := range r.Trailer {
		for _, text := range slices.Concat(values, []string{name}) {
			if t := max(x.inspector.guard.in(text), x.inspector.foldedIn(text)); t >= 0 {
				d := x.misused(t, "the trailer "+visible(name))
				x.abort(d)
				return d
			}
		}
	}
	return nil
}

// readWhole reads a body of at most limit bytes. If it is longer, the body is as before,
// and whole is nil. The few bodies that are held at the same time share a bound.
func (x *exchange) readWhole(r *http.Request, limit int64) (whole []byte, d *denial) {
	if r.ContentLength > limit {
		return nil, nil
	}
	if !x.holds {
		select {
		case x.inspector.buffered <- struct{}{}:
			x.holds = true
		case <-r.Context().Done():
			return nil, x.unread(r.Context().Err())
		}
	}
	body := r.Body
	whole, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return nil, x.unread(err)
	}
	if int64(len(whole)) > limit {
		r.Body = &readCloser{io.MultiReader(bytes.NewReader(whole), body), body}
		return nil, nil
	}
	if d, ok := x.guardTrailer(r).(*denial); ok {
		return nil, d
	}
	r.Body = &readCloser{bytes.NewReader(whole), body}
	if whole == nil {
		whole = []byte{}
	}
	return whole, nil
}

// release gives back the place of a body that was held.
func (x *exchange) release() {
	if x.holds {
		<-x.inspector.buffered
	}
}

// A member is a string of a JSON body that is replaced: its place with quotes.
type member struct{ from, to, token int }

func isJSON(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// surveyJSON finds placeholders in members of a JSON body. done says that the body was
// searched; otherwise it is for the search of other bodies.
func (x *exchange) surveyJSON(r *http.Request) (done bool, d *denial) {
	i := x.inspector
	inJSON := func(p Place) bool { return p.JSON != "" }
	if !slices.ContainsFunc(i.bySecret, func(tokens []int) bool {
		return slices.ContainsFunc(tokens, func(n int) bool { return x.belongs(n, inJSON) })
	}) {
		return false, nil
	}
	if code := r.Header.Get("Content-Encoding"); code != "" && !strings.EqualFold(code, "identity") {
		return false, x.deny(http.StatusForbidden, ruleSecrets, "a secret may be in the JSON body of this request, and the body has the content coding "+visible(code)+"; send it without")
	}
	whole, d := x.readWhole(r, maxJSON)
	if d != nil || whole == nil {
		return false, d
	}
	members := x.membersOf(whole)
	rest := bytes.Clone(whole)
	for _, m := range members {
		clear(rest[m.from:m.to])
	}
	if _, err := i.guard.step(rest, true, func(of int) error { return x.misused(of, "the body") }); err != nil {
		return false, asDenial(err)
	}
	x.members, x.whole = members, whole
	return true, nil
}

func asDenial(err error) *denial {
	var d *denial
	errors.As(err, &d)
	return d
}

// membersOf finds the members of a JSON text whose whole value is a placeholder that
// belongs there. It stops where the text is not JSON.
func (x *exchange) membersOf(text []byte) []member {
	i := x.inspector
	type level struct {
		object, isKey bool
		key           string
	}
	var found []member
	var path []level
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		before := d.InputOffset()
		t, err := d.Token()
		if err != nil {
			return found
		}
		top := func() *level {
			if len(path) == 0 {
				return new(level)
			}
			return &path[len(path)-1]
		}
		switch t := t.(type) {
		case json.Delim:
			if t == '{' || t == '[' {
				path = append(path, level{object: t == '{', isKey: t == '{'})
				continue
			}
			path = path[:len(path)-1]
		case string:
			if l := top(); l.object && l.isKey {
				l.key, l.isKey = t, false
				continue
			}
			n := slices.IndexFunc(i.tokens, func(k token) bool { return k.text == t })
			if n >= 0 && top().object {
				var keys []string
				for _, l := range path {
					if l.object {
						keys = append(keys, l.key)
					}
				}
				name := strings.Join(keys, ".")
				if x.belongs(n, func(p Place) bool { return p.JSON != "" && p.JSON == name }) {
					// Between two tokens are spaces, a colon or a comma.
					from := int(before) + bytes.IndexByte(text[before:], '"')
					found = append(found, member{from, int(d.InputOffset()), n})
				}
			}
		}
		if l := top(); l.object {
			l.isKey = true
		}
	}
}

// fillMembers writes values into the JSON body.
func (x *exchange) fillMembers(r *http.Request, values map[int][]byte) {
	if len(x.members) == 0 {
		return
	}
	var b []byte
	from := 0
	for _, m := range x.members {
		b = append(append(b, x.whole[from:m.from]...), quote(values[m.token])...)
		from = m.to
	}
	b = append(b, x.whole[from:]...)
	r.Body = &readCloser{bytes.NewReader(b), r.Body}
	r.ContentLength = int64(len(b))
	r.Header.Set("Content-Length", strconv.Itoa(len(b)))
}

// quote writes a value as a JSON string. The value has no control characters.
func quote(value []byte) []byte {
	b := []byte{'"'}
	for _, c := range value {
		if c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return append(b, '"')
}

// limitCoding lets the server answer in a coding that can be opened.
func limitCoding(h http.Header) {
	if len(h.Values("Accept-Encoding")) == 0 {
		return
	}
	code := "identity"
	for offer := range strings.SplitSeq(strings.ToLower(strings.Join(h.Values("Accept-Encoding"), ",")), ",") {
		name, q, _ := strings.Cut(strings.ReplaceAll(offer, " ", ""), ";q=")
		if weight, err := strconv.ParseFloat(q, 64); (name == "gzip" || name == "*") && (err != nil || weight > 0) {
			code = "gzip"
		}
	}
	h.Set("Accept-Encoding", code)
}

// scrub replaces values in the body and the trailers of an answer.
func (x *exchange) scrub(res *http.Response, search *matcher) error {
	code := strings.ToLower(strings.TrimSpace(res.Header.Get("Content-Encoding")))
	body := res.Body
	f := &filter{src: body, matcher: search, end: func() error { scrubFields(res.Trailer, search); return nil }}
	switch {
	case code == "" || code == "identity":
	case res.StatusCode != http.StatusPartialContent && (code == "gzip" || code == "x-gzip" || code == "deflate"):
		d := &decoder{src: body, code: code}
		f.src = d
		body = d
		res.Header.Del("Content-Encoding")
		res.Header.Del("Content-Length")
		res.ContentLength = -1
	default:
		// A server that wants to give a value away can always do so. One that means well
		// does not use a coding that it was not asked for.
		x.Opaque = true
		return nil
	}
	res.Body = &readCloser{f, body}
	return nil
}

// scrubFields replaces values in the fields of an answer. search may be nil.
func scrubFields(h http.Header, search *matcher) {
	for _, values := range h {
		for n, v := range values {
			values[n] = search.replace(v)
		}
	}
}

// A decoder opens a content coding, beginning with the first read: before it, the server
// may not have sent anything.
type decoder struct {
	src  io.ReadCloser
	code string
	r    io.Reader
	err  error
}

var gzipPool sync.Pool

func (d *decoder) Read(b []byte) (int, error) {
	if d.r == nil && d.err == nil {
		d.r, d.err = openCoding(d.src, d.code)
	}
	if d.err != nil {
		return 0, d.err
	}
	n, err := d.r.Read(b)
	if err == io.EOF {
		// Trailers come after the end of the body, which zlib does not read.
		if _, rest := io.Copy(io.Discard, d.src); rest != nil {
			err = rest
		}
	}
	return n, err
}

func (d *decoder) Close() error {
	if z, ok := d.r.(*gzip.Reader); ok {
		gzipPool.Put(z)
	}
	d.r, d.err = nil, errors.New("read after close")
	return d.src.Close()
}

func openCoding(src io.Reader, code string) (io.Reader, error) {
	if code != "deflate" {
		z, ok := gzipPool.Get().(*gzip.Reader)
		if !ok {
			z = new(gzip.Reader)
		}
		// An answer without a body may still name a coding: io.EOF is its end.
		return z, z.Reset(src)
	}
	// By the standard it is zlib; some servers leave its header out.
	var head [2]byte
	n, err := io.ReadFull(src, head[:])
	src = io.MultiReader(bytes.NewReader(head[:n]), src)
	if err == nil && head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
		return zlib.NewReader(src)
	}
	if n == 0 {
		return nil, err
	}
	return flate.NewReader(src), nil
}
