package inspect

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A spot is one place of a request with placeholders that may be there.
type spot struct {
	header string // the name of a field, or "" for the query
	index  int    // which value of the field, or which parameter
	tokens []int
}

// survey finds all placeholders in the head of a request. It returns a denial for one in a
// place where it does not belong, and changes nothing. own says that the request is for
// the host of the connection; otherwise no placeholder belongs anywhere.
func (x *exchange) survey(r *http.Request, own bool) *denial {
	i := x.inspector
	if i.guard == nil {
		return nil
	}
	for _, part := range []struct{ text, where string }{
		{r.Method, "the method"}, {r.URL.Path, "the path"}, {r.URL.EscapedPath(), "the path"}, {r.Host, "the host"},
	} {
		if t := i.guard.in(part.text); t >= 0 {
			return x.misused(t, part.where)
		}
	}
	if t := i.foldedIn(r.Host); t >= 0 {
		return x.misused(t, "the host")
	}
	for _, fields := range []http.Header{r.Header, r.Trailer} {
		for name, values := range fields {
			if t := i.foldedIn(name); t >= 0 {
				return x.misused(t, "the name of a field")
			}
			for n, v := range values {
				if d := x.surveyField(name, n, v, own); d != nil {
					return d
				}
			}
		}
	}
	if d := x.surveyQuery(r.URL.RawQuery, own); d != nil {
		return d
	}
	if (r.Method == http.MethodTrace || r.Method == "TRACK") && len(x.spots) > 0 {
		return x.misused(x.spots[0].tokens[0], "a "+r.Method+" request, which servers send back")
	}
	return nil
}

// foldedIn finds a placeholder in a text whose case may have changed.
func (i *Inspector) foldedIn(s string) int {
	if len(s) < minPlaceholder {
		return -1
	}
	s = strings.ToLower(s)
	return slices.IndexFunc(i.tokens, func(t token) bool { return strings.Contains(s, strings.ToLower(t.text)) })
}

// belongs reports whether a token may be in a place of this request.
func (x *exchange) belongs(n int, in func(Place) bool) bool {
	t := &x.inspector.tokens[n]
	return slices.ContainsFunc(t.places, in) && x.inspector.config.Secrets[t.secret].Hosts(x.host, x.port)
}

func (x *exchange) surveyField(name string, index int, value string, own bool) *denial {
	i := x.inspector
	if i.guard.in(value) < 0 {
		return nil
	}
	left := value
	s := spot{header: name, index: index}
	for n := range i.tokens {
		if !own {
			break
		}
		if name == "Authorization" && i.tokens[n].aws {
			rest, d := x.readSigner(n, value)
			if d != nil {
				return d
			}
			if rest != "" {
				left = rest
			}
			continue
		}
		if !x.belongs(n, func(p Place) bool { return http.CanonicalHeaderKey(p.Header) == name }) {
			continue
		}
		// What is left without the placeholders that belong here must have none.
		if without, found := substitute(left, i.tokens[n].text, make([]byte, 1)); found {
			left, s.tokens = without, append(s.tokens, n)
		}
	}
	if t := i.guard.in(left); t >= 0 {
		return x.misused(t, "the field "+visible(name))
	}
	if len(s.tokens) > 0 {
		x.spots = append(x.spots, s)
	}
	return nil
}

// substitute replaces a placeholder in the value of a field: as it stands there, and inside
// of words in base64, as Basic has them.
func substitute(value, placeholder string, with []byte) (string, bool) {
	found := false
	words := strings.Split(value, " ")
	for n, word := range words {
		if strings.Contains(word, placeholder) {
			found = true
			words[n] = strings.ReplaceAll(word, placeholder, string(with))
			continue
		}
		for _, code := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			plain, err := code.DecodeString(word)
			if err != nil || !bytes.Contains(plain, []byte(placeholder)) {
				continue
			}
			found = true
			filled := bytes.ReplaceAll(plain, []byte(placeholder), with)
			words[n] = code.EncodeToString(filled)
			clear(filled)
			break
		}
	}
	return strings.Join(words, " "), found
}

func (x *exchange) surveyQuery(query string, own bool) *denial {
	i := x.inspector
	t := max(i.guard.in(query), i.guard.in(unescape(query)))
	if t < 0 {
		return nil
	}
	if own && x.presigned(query) {
		return x.deny(http.StatusForbidden, ruleSecrets, "cloche does not sign URLs again (X-Amz-Credential in the query); let the client sign the request in the field Authorization")
	}
	found := false
	for index, pair := range strings.Split(query, "&") {
		bad := max(i.guard.in(pair), i.guard.in(unescape(pair)))
		if bad < 0 {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		key, value = unescape(key), unescape(value)
		n := slices.IndexFunc(i.tokens, func(t token) bool { return t.text == value })
		if !own || n < 0 || i.guard.in(key) >= 0 || !x.belongs(n, func(p Place) bool { return p.Query != "" && p.Query == key }) {
			return x.misused(bad, "the query")
		}
		found = true
		x.spots = append(x.spots, spot{index: index, tokens: []int{n}})
	}
	if !found {
		return x.misused(t, "the query")
	}
	return nil
}

// unescape decodes a query as far as it can be decoded.
func unescape(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return s
	}
	if plain, err := url.QueryUnescape(s); err == nil {
		return plain
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if plain, err := url.PathUnescape(s[i : i+3]); err == nil {
				b.WriteString(plain)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// fill puts the values in the place of the placeholders that survey and guardBody found,
// and clears them.
func (x *exchange) fill(r *http.Request) *denial {
	values := make(map[int][]byte)
	defer func() {
		for _, v := range values {
			clear(v)
		}
	}()
	var needed []int
	for _, s := range x.spots {
		needed = append(needed, s.tokens...)
	}
	for _, s := range x.members {
		needed = append(needed, s.token)
	}
	if x.signer != nil {
		needed = append(needed, x.signer.key, x.signer.secret)
	}
	for _, n := range needed {
		if values[n] != nil {
			continue
		}
		v, d := x.value(r.Context(), n)
		if d != nil {
			return d
		}
		values[n] = v
	}
	pairs := strings.Split(r.URL.RawQuery, "&")
	for _, s := range x.spots {
		for _, n := range s.tokens {
			text := x.inspector.tokens[n].text
			if s.header == "" {
				key, _, _ := strings.Cut(pairs[s.index], "=")
				pairs[s.index] = key + "=" + url.QueryEscape(string(values[n]))
				continue
			}
			all := r.Header[s.header]
			all[s.index], _ = substitute(all[s.index], text, values[n])
		}
	}
	r.URL.RawQuery = strings.Join(pairs, "&")
	x.fillMembers(r, values)
	if x.signer != nil {
		x.signer.sign(r, values[x.signer.key], values[x.signer.secret])
	}
	return nil
}

// value asks for the value of a token, and lets answers be searched for it.
func (x *exchange) value(ctx context.Context, n int) ([]byte, *denial) {
	i := x.inspector
	t := &i.tokens[n]
	name := i.nameOf(n)
	ctx, cancel := context.WithTimeout(ctx, i.limits.value)
	defer cancel()
	v, err := t.value(ctx)
	if err != nil {
		clear(v)
		// The error is the source's, and may say more than the sandbox should know.
		return nil, x.failed("the value of the secret "+name+" could not be read; its source failed", fmt.Errorf("the secret %s: %w", name, err))
	}
	if len(v) == 0 || bytes.ContainsFunc(v, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		clear(v)
		return nil, x.failed("the value of the secret "+name+" is empty, or has a line end or another control character", nil)
	}
	i.values.learn(n, v, t.text)
	if !slices.Contains(x.Secrets, name) {
		x.Secrets = append(x.Secrets, name)
	}
	return v, nil
}
