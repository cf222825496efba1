package inspect

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// tokens returns the placeholders that belong to the secret access key.
func awsTokens(a *AWS, secret int) ([]token, error) {
	if a.KeyID == nil || a.TokenPlaceholder != "" && a.Token == nil {
		return nil, errors.New("the access key ID or the session token of AWS has no source")
	}
	tokens := []token{{secret: secret, text: a.KeyPlaceholder, value: a.KeyID, aws: true}}
	if a.TokenPlaceholder != "" {
		tokens = append(tokens, token{secret: secret, text: a.TokenPlaceholder, value: a.Token, places: []Place{{Header: "X-Amz-Security-Token"}}})
	}
	return tokens, nil
}

const (
	awsAlgorithm = "AWS4-HMAC-SHA256"
	awsContent   = "X-Amz-Content-Sha256"
	awsDate      = "X-Amz-Date"
	// maxSigned bounds a body that has to be hashed, because the request does not say the
	// hash. Those of most services are smaller; S3 always says it.
	maxSigned = 8 << 20
)

// A signer is what a signed request says about its signature.
type signer struct {
	key, secret int    // tokens
	scope       string // date/region/service/aws4_request
	service     string
	fields      []string // the names of the signed fields
	signature   string
	payload     string // the hash of the body, or the word in its place
	path        string // as it is signed
}

// readSigner reads the field Authorization of a request that is signed with the key n. It
// returns the value without the placeholder, or "" if it has another form.
func (x *exchange) readSigner(n int, value string) (rest string, d *denial) {
	i := x.inspector
	t := &i.tokens[n]
	algorithm, list, _ := strings.Cut(value, " ")
	if !strings.Contains(list, "Credential="+t.text+"/") || !i.config.Secrets[t.secret].Hosts(x.host, x.port) {
		return "", nil
	}
	if algorithm != awsAlgorithm {
		return "", x.deny(http.StatusForbidden, ruleSecrets, "cloche cannot sign again with "+visible(algorithm)+"; let the client sign with "+awsAlgorithm)
	}
	s := &signer{key: n, secret: i.bySecret[t.secret][0]}
	for part := range strings.SplitSeq(list, ",") {
		name, v, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			s.scope = strings.TrimPrefix(v, t.text+"/")
		case "SignedHeaders":
			s.fields = strings.Split(v, ";")
		case "Signature":
			s.signature = v
		}
	}
	scope := strings.Split(s.scope, "/")
	if len(scope) != 4 || scope[3] != "aws4_request" || !slices.Contains(s.fields, "host") || len(s.signature) != hex.EncodedLen(sha256.Size) {
		return "", x.unsignable("its field Authorization is not complete")
	}
	s.service = scope[2]
	x.signer = s
	return strings.Replace(value, t.text, "", 1), nil
}

func (x *exchange) unsignable(why string) *denial {
	return x.deny(http.StatusForbidden, ruleSecrets, "cloche cannot sign this AWS request again: "+why)
}

// presigned reports whether a query has a signature made with a placeholder of this host.
func (x *exchange) presigned(query string) bool {
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		id, _, _ := strings.Cut(unescape(value), "/")
		for _, t := range x.inspector.tokens {
			if t.aws && strings.EqualFold(name, "X-Amz-Credential") && id == t.text && x.inspector.config.Secrets[t.secret].Hosts(x.host, x.port) {
				return true
			}
		}
	}
	return false
}

// verify checks the client's signature. If it is not what the placeholder gives, the
// inspector reads the request in another way than the client, and a new signature would be
// wrong, too.
func (s *signer) verify(x *exchange, r *http.Request) *denial {
	date, _, _ := strings.Cut(s.scope, "/")
	if at := r.Header.Get(awsDate); !strings.HasPrefix(at, date+"T") {
		return x.unsignable("it has no field X-Amz-Date, or one of another day than its signature")
	}
	for _, name := range s.fields {
		if name != strings.ToLower(name) || hopByHop(name) && name != "host" && name != "content-length" || name == "expect" {
			return x.unsignable("it signs the field " + visible(name) + ", which is not sent on as it is")
		}
	}
	if d := s.readPayload(x, r); d != nil {
		return d
	}
	placeholder := []byte(x.inspector.tokens[s.secret].text)
	for _, path := range s.paths(r) {
		s.path = path
		if hmac.Equal([]byte(s.compute(r, placeholder)), []byte(s.signature)) {
			return nil
		}
	}
	return x.unsignable("its signature is not the one that the secret access key of the sandbox gives")
}

// readPayload finds what the signature says about the body.
func (s *signer) readPayload(x *exchange, r *http.Request) *denial {
	s.payload = r.Header.Get(awsContent)
	switch {
	case strings.HasPrefix(s.payload, "STREAMING-AWS4"):
		return x.unsignable("each chunk of its body is signed (" + visible(s.payload) + "); configure the client to send the body unsigned or in one piece")
	case s.payload != "":
		return nil
	case r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0:
		s.payload = hash(nil)
		return nil
	}
	whole, d := x.readWhole(r, maxSigned)
	if d != nil {
		return d
	}
	if whole == nil {
		return x.unsignable("its body is longer than " + strconv.Itoa(maxSigned>>20) + " MiB, and it has no field X-Amz-Content-Sha256")
	}
	s.payload = hash(whole)
	return nil
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// paths returns the path in the forms in which clients sign it. S3 signs it encoded once;
// other services sign the encoded path, encoded again.
func (s *signer) paths(r *http.Request) []string {
	sent, plain := r.URL.EscapedPath(), r.URL.Path
	if sent == "" {
		sent, plain = "/", "/"
	}
	if s.service == "s3" {
		return []string{sent, awsEscape(plain, true)}
	}
	return []string{awsEscape(sent, true), awsEscape(awsEscape(plain, true), true)}
}

// compute returns the signature of a request with a secret access key.
func (s *signer) compute(r *http.Request, key []byte) string {
	var b bytes.Buffer
	b.WriteString(r.Method + "\n" + s.path + "\n" + awsQuery(r.URL.RawQuery) + "\n")
	for _, name := range s.fields {
		values := slices.Clone(r.Header[http.CanonicalHeaderKey(name)])
		switch {
		case name == "host":
			values = []string{r.Host}
		case name == "content-length":
			values = []string{strconv.FormatInt(r.ContentLength, 10)}
		}
		for n := range values {
			values[n] = strings.Join(strings.Fields(values[n]), " ")
		}
		b.WriteString(name + ":" + strings.Join(values, ",") + "\n")
	}
	b.WriteString("\n" + strings.Join(s.fields, ";") + "\n" + s.payload)
	text := awsAlgorithm + "\n" + r.Header.Get(awsDate) + "\n" + s.scope + "\n" + hash(b.Bytes())
	clear(b.Bytes()) // the session token may be a signed field
	derived := append([]byte("AWS4"), key...)
	for part := range strings.SplitSeq(s.scope, "/") {
		next := mac(derived, part)
		clear(derived)
		derived = next
	}
	defer clear(derived)
	return hex.EncodeToString(mac(derived, text))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// sign puts the signature with the real key into the request, which is otherwise ready to
// be sent.
func (s *signer) sign(r *http.Request, id, key []byte) {
	r.Header.Set("Authorization", awsAlgorithm+" Credential="+string(id)+"/"+s.scope+
		", SignedHeaders="+strings.Join(s.fields, ";")+", Signature="+s.compute(r, key))
}

// awsQuery writes a query as it is signed: sorted and encoded by AWS's rules.
func awsQuery(query string) string {
	if query == "" {
		return ""
	}
	var pairs [][2]string
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		pairs = append(pairs, [2]string{awsEscape(unescape(name), false), awsEscape(unescape(value), false)})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int {
		if c := strings.Compare(a[0], b[0]); c != 0 {
			return c
		}
		return strings.Compare(a[1], b[1])
	})
	var b strings.Builder
	for n, p := range pairs {
		if n > 0 {
			b.WriteByte('&')
		}
		b.WriteString(p[0] + "=" + p[1])
	}
	return b.String()
}

// awsEscape encodes every byte but the unreserved ones of RFC 3986, and slashes in a path.
func awsEscape(s string, path bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 || path && c == '/' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}
