package inspect

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"testing"
)

const (
	keyPlaceholder    = "AKIAPLACEHOLDER00001"
	secretPlaceholder = "placeholder/placeholder+placeholder00001"
	tokenPlaceholder  = "session-placeholder-session-placeholder"
	keyID             = "AKIAREALREALREALREAL"
	secretKey         = "realreal/realreal+realrealrealrealreal01"
	sessionToken      = "session-realrealrealrealrealrealrealrea"
	awsNow            = "20301224T120000Z"
)

func withAWS() option {
	return func(_ *world, c *Config, _ *tls.Config) {
		c.Secrets = append(c.Secrets, Secret{Name: "AWS", Placeholder: secretPlaceholder, Value: give(secretKey),
			Hosts: func(host string, _ uint16) bool { return host == apiHost },
			AWS:   &AWS{KeyPlaceholder: keyPlaceholder, KeyID: give(keyID), TokenPlaceholder: tokenPlaceholder, Token: give(sessionToken)}})
	}
}

// An awsRequest is a request in the parts from which AWS computes its signature. It is
// written by the text of AWS's documentation, and shares nothing with the inspector.
type awsRequest struct {
	method, path, service string // path is decoded
	query                 url.Values
	fields                map[string]string
	payload               string
}

func (a *awsRequest) signature(secret string) (signature, signed string) {
	path := rfc3986(a.path, "/")
	if a.service != "s3" {
		path = rfc3986(path, "/")
	}
	var query []string
	for name, values := range a.query {
		for _, v := range values {
			query = append(query, rfc3986(name, "")+"="+rfc3986(v, ""))
		}
	}
	// By name, and then by value. "=" sorts behind some bytes of names.
	sort.Slice(query, func(i, j int) bool {
		ni, vi, _ := strings.Cut(query[i], "=")
		nj, vj, _ := strings.Cut(query[j], "=")
		return ni < nj || ni == nj && vi < vj
	})
	var names []string
	for name := range a.fields {
		names = append(names, name)
	}
	sort.Strings(names)
	canonical := a.method + "\n" + path + "\n" + strings.Join(query, "&") + "\n"
	for _, name := range names {
		canonical += name + ":" + strings.Join(strings.Fields(a.fields[name]), " ") + "\n"
	}
	signed = strings.Join(names, ";")
	canonical += "\n" + signed + "\n" + a.payload
	sum := sha256.Sum256([]byte(canonical))
	text := "AWS4-HMAC-SHA256\n" + awsNow + "\n20301224/eu-west-1/" + a.service + "/aws4_request\n" + hex.EncodeToString(sum[:])
	key := []byte("AWS4" + secret)
	for _, part := range []string{"20301224", "eu-west-1", a.service, "aws4_request", text} {
		h := hmac.New(sha256.New, key)
		io.WriteString(h, part)
		key = h.Sum(nil)
	}
	return hex.EncodeToString(key), signed
}

func rfc3986(s, keep string) string {
	out := ""
	for _, c := range []byte(s) {
		if strings.Contains("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"+keep, string(rune(c))) && c < 0x80 {
			out += string(rune(c))
		} else {
			out += fmt.Sprintf("%%%02X", c)
		}
	}
	return out
}

func (a *awsRequest) field(id, secret string) string {
	signature, signed := a.signature(secret)
	return "AWS4-HMAC-SHA256 Credential=" + id + "/20301224/eu-west-1/" + a.service + "/aws4_request, SignedHeaders=" + signed + ", Signature=" + signature
}

// verifyAWS is the server: it tells whether a request is signed with the real key.
func verifyAWS(r *http.Request, service string) error {
	a := &awsRequest{method: r.Method, path: r.URL.Path, service: service, query: r.URL.Query(), fields: map[string]string{"host": r.Host}}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	a.payload = hex.EncodeToString(sum[:])
	if p := r.Header.Get("X-Amz-Content-Sha256"); p != "" {
		if len(p) == 64 && p != a.payload {
			return fmt.Errorf("the body has another hash")
		}
		a.payload = p
	}
	got := r.Header.Get("Authorization")
	_, names, _ := strings.Cut(got, "SignedHeaders=")
	names, _, _ = strings.Cut(names, ",")
	for _, name := range strings.Split(names, ";") {
		switch name {
		case "host":
		case "content-length":
			a.fields[name] = fmt.Sprint(len(body))
		default:
			a.fields[name] = strings.Join(r.Header.Values(name), ",")
		}
	}
	if want := a.field(keyID, secretKey); got != want {
		return fmt.Errorf("signed %q, want %q", got, want)
	}
	return nil
}

// awsServer answers whether requests are signed with the real key.
func awsServer(service string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := verifyAWS(r, service); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, "signed by %s, session %q", keyID, r.Header.Get("X-Amz-Security-Token"))
	}
}

// send sends a request signed with the placeholders.
func (a *awsRequest) send(t testing.TB, client *http.Client, body string, fields ...string) (*http.Response, string) {
	t.Helper()
	a.fields["host"], a.fields["x-amz-date"] = apiHost, awsNow
	r := request(t, a.method, "/", strings.NewReader(body), fields...)
	r.URL.Path, r.URL.RawPath = a.path, rfc3986(a.path, "/")
	r.URL.RawQuery = a.query.Encode()
	for name, value := range a.fields {
		if name != "host" && name != "content-length" {
			r.Header.Set(name, value)
		}
	}
	if a.payload == "" {
		sum := sha256.Sum256([]byte(body))
		a.payload = hex.EncodeToString(sum[:])
	}
	r.Header.Set("Authorization", a.field(keyPlaceholder, secretPlaceholder))
	return do(t, client, r)
}

func TestAWSIsSignedAgain(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		for name, c := range map[string]struct {
			request awsRequest
			body    string
		}{
			"sts":             {awsRequest{method: "POST", path: "/", service: "sts", fields: map[string]string{"content-type": "application/x-www-form-urlencoded"}}, "Action=GetCallerIdentity"},
			"session":         {awsRequest{method: "GET", path: "/", service: "iam", fields: map[string]string{"x-amz-security-token": tokenPlaceholder}, query: url.Values{"Action": {"X"}}}, ""},
			"odd path":        {awsRequest{method: "GET", path: "/a b/ü:1/$x", service: "lambda", fields: map[string]string{}}, ""},
			"odd query":       {awsRequest{method: "GET", path: "/", service: "ec2", fields: map[string]string{}, query: url.Values{"b": {"2", "1"}, "a b": {"+ &="}, "empty": {""}, "b-": {"x"}}}, ""},
			"s3":              {awsRequest{method: "PUT", path: "/bucket/key with %2F and +", service: "s3", fields: map[string]string{"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}, payload: "UNSIGNED-PAYLOAD"}, "data"},
			"accept-encoding": {awsRequest{method: "GET", path: "/", service: "s3", fields: map[string]string{"accept-encoding": "br, gzip", "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}, payload: "UNSIGNED-PAYLOAD"}, ""},
			"signed length":   {awsRequest{method: "POST", path: "/", service: "sqs", fields: map[string]string{"content-length": "4"}}, "four"},
			"spaces":          {awsRequest{method: "POST", path: "/", service: "sqs", fields: map[string]string{"x-amz-meta": "a   b"}}, "x"},
		} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, awsServer(c.request.service), withAWS())
				res, body := c.request.send(t, w.client(h2), c.body)
				if res.StatusCode != http.StatusOK || !strings.HasPrefix(body, "signed by "+keyPlaceholder) {
					t.Fatalf("%s %s", res.Status, body)
				}
				if token := c.request.fields["x-amz-security-token"]; token != "" && !strings.HasSuffix(body, fmt.Sprintf("%q", tokenPlaceholder)) {
					t.Errorf("the answer is %s", body)
				}
			})
		}
	})
}

func TestAWSIsRefused(t *testing.T) {
	plain := func() awsRequest {
		return awsRequest{method: "PUT", path: "/b/k", service: "s3", fields: map[string]string{}}
	}
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }, withAWS())
	client := w.client(true)
	refused := func(name, want string, res *http.Response, body string) {
		t.Helper()
		if a := denied(t, res, body, 403); !strings.Contains(a.Reason, want) {
			t.Errorf("%s: %s", name, body)
		}
	}
	a := plain()
	a.payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	a.fields["x-amz-content-sha256"] = a.payload
	res, body := a.send(t, client, "x")
	refused("chunks", "each chunk", res, body)

	a = plain()
	a.fields["connection"] = "keep-alive"
	res, body = a.send(t, w.client(false), "x")
	refused("a field that is not sent on", "connection", res, body)

	a = plain()
	a.fields["host"] = apiHost
	r := request(t, "GET", "/", nil, "X-Amz-Date: "+awsNow, "Authorization: "+a.field(keyPlaceholder, "another secret access key, wrong one"))
	res, body = do(t, client, r)
	refused("another key", "not the one that the secret access key of the sandbox gives", res, body)

	r = request(t, "GET", "/", nil, "X-Amz-Date: 20290101T000000Z", "Authorization: "+a.field(keyPlaceholder, secretPlaceholder))
	res, body = do(t, client, r)
	refused("another day", "another day", res, body)

	r = request(t, "GET", "/", nil, "Authorization: AWS4-ECDSA-P256-SHA256 Credential="+keyPlaceholder+"/20301224/s3/aws4_request, SignedHeaders=host, Signature=00")
	res, body = do(t, client, r)
	refused("another algorithm", "AWS4-ECDSA-P256-SHA256", res, body)

	r = request(t, "GET", "/?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="+keyPlaceholder+"%2F20301224%2Feu-west-1%2Fs3%2Faws4_request&X-Amz-Signature=00", nil)
	res, body = do(t, client, r)
	refused("a signed URL", "URL", res, body)
	if m := w.misused(); len(m) != 0 {
		t.Errorf("misuses %+v", m)
	}
	// The secret access key itself has no business in a request.
	r = request(t, "GET", "/", nil, "Authorization: Bearer "+secretPlaceholder)
	res, body = do(t, client, r)
	refused("the secret access key", "placeholder of AWS", res, body)
	if m := w.misused(); len(m) != 1 {
		t.Errorf("misuses %+v", m)
	}
}

func TestAWSToOtherHost(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }, withAWS(), withHost("evil.example.com"))
	a := awsRequest{method: "GET", path: "/", service: "s3", fields: map[string]string{"host": "evil.example.com"}, payload: hash(nil)}
	res, body := do(t, w.client(true), request(t, "GET", "https://evil.example.com/", nil, "X-Amz-Date: "+awsNow, "Authorization: "+a.field(keyPlaceholder, secretPlaceholder)))
	denied(t, res, body, 403)
	if m := w.misused(); len(m) != 1 || !m[0].Foreign {
		t.Errorf("misuses %+v", m)
	}
}

// Whatever a client signs by AWS's documentation, the new signature is right, too.
func FuzzSigV4(f *testing.F) {
	f.Add("GET", "/a/b", "x", "1", "x-amz-meta", "v", []byte("body"), true)
	f.Add("PUT", "/ü %/+", "a b", "&=+", "x-two", " a  b ", []byte{}, false)
	f.Add("POST", "/~-._!*'()", "", "/", "content-type", "a;b", []byte{0, 255}, true)
	inspector, err := New(Config{Secrets: []Secret{{Name: "AWS", Placeholder: secretPlaceholder, Value: give(secretKey), Hosts: func(string, uint16) bool { return true },
		AWS: &AWS{KeyPlaceholder: keyPlaceholder, KeyID: give(keyID)}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, path, key, value, field, text string, body []byte, s3 bool) {
		if !strings.HasPrefix(path, "/") || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || method == "" || method == "TRACE" || method == "TRACK" ||
			field == "" || strings.Trim(field, "abcdefghijklmnopqrstuvwxyz-0123456789") != "" || hopByHop(field) || field == "authorization" || field == "x-amz-date" ||
			field == "x-amz-content-sha256" || field == "expect" || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
			return
		}
		a := &awsRequest{method: method, path: path, service: "dynamodb", query: url.Values{key: {value, "2"}, "z": {""}}, payload: hash(body),
			fields: map[string]string{"host": apiHost, "x-amz-date": awsNow, field: text}}
		if s3 {
			a.service = "s3"
		}
		r := &http.Request{Method: method, Host: apiHost, URL: &url.URL{Path: path, RawPath: rfc3986(path, "/"), RawQuery: a.query.Encode()}, Header: http.Header{},
			Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), ProtoMajor: 2}
		r.Header.Set("X-Amz-Date", awsNow)
		r.Header.Set(field, text)
		r.Header.Set("Authorization", a.field(keyPlaceholder, secretPlaceholder))
		x := &exchange{session: &session{inspector: inspector, host: apiHost, port: 443}, secrets: true}
		r = r.WithContext(context.Background())
		defer x.release()
		if d := x.prepare(r); d != nil {
			if d.misuse != nil {
				return // the fuzzer found the placeholder
			}
			t.Fatalf("refused: %v", d)
		}
		if err := verifyAWS(r, a.service); err != nil {
			t.Error(err)
		}
	})
}
