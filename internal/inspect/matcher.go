package inspect

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
)

// A pattern is a text that is searched for.
type pattern struct {
	text []byte // masked, see mask
	with []byte // what replaces it, of the same length; nil for a placeholder
	of   int    // the token that it is a spelling of
}

// A mask hides texts in memory. The zero mask leaves them as they are.
type mask [64]byte

func (m *mask) apply(b []byte) {
	for i := range b {
		b[i] ^= m[i%len(m)]
	}
}

// A matcher finds many patterns at the same time. It looks at two bytes, and if no pattern
// has them, moves on by almost the length of the shortest pattern (Wu and Manber). So
// searching takes about the same time for one secret and for twenty.
type matcher struct {
	patterns []pattern
	mask     *mask
	min, max int
	shift    []uint8          // by two bytes: how far to move on
	ends     map[uint16][]int // by two bytes: patterns that have them at min-2
	first    [256]bool        // the first bytes of patterns
}

// newMatcher makes a matcher of patterns of at least two bytes. It returns nil if there
// are none. With a mask, the texts are masked.
func newMatcher(patterns []pattern, m *mask) *matcher {
	if len(patterns) == 0 {
		return nil
	}
	if m == nil {
		m = new(mask)
	}
	f := &matcher{patterns: patterns, mask: m, min: 255, shift: make([]uint8, 1<<16), ends: make(map[uint16][]int)}
	for _, p := range patterns {
		f.min, f.max = min(f.min, len(p.text)), max(f.max, len(p.text))
	}
	for b := range f.shift {
		f.shift[b] = uint8(f.min - 1)
	}
	for n, p := range patterns {
		f.first[p.text[0]^m[0]] = true
		for j := 1; j < f.min; j++ {
			two := block(p.text[j-1]^m[(j-1)%len(m)], p.text[j]^m[j%len(m)])
			f.shift[two] = min(f.shift[two], uint8(f.min-1-j))
			if j == f.min-1 {
				f.ends[two] = append(f.ends[two], n)
			}
		}
	}
	return f
}

func block(a, b byte) uint16 { return uint16(a)<<8 | uint16(b) }

// begins reports whether b begins with pattern n, or, if b is shorter, is its beginning.
func (f *matcher) begins(b []byte, n int) bool {
	text := f.patterns[n].text
	for i := range min(len(b), len(text)) {
		if b[i]^f.mask[i%len(f.mask)] != text[i] {
			return false
		}
	}
	return true
}

// find returns the first match at or after from, the longest one there, or -1.
func (f *matcher) find(b []byte, from int) (at, which int) {
	for i := from + f.min - 1; i < len(b); {
		two := block(b[i-1], b[i])
		if s := f.shift[two]; s > 0 {
			i += int(s)
			continue
		}
		at, which = i-f.min+1, -1
		for _, n := range f.ends[two] {
			longer := which < 0 || len(f.patterns[n].text) > len(f.patterns[which].text)
			if longer && len(b)-at >= len(f.patterns[n].text) && f.begins(b[at:], n) {
				which = n
			}
		}
		if which >= 0 {
			return at, which
		}
		i++
	}
	return -1, -1
}

// partial returns the first position at or after from where b ends within a pattern, or
// the length of b.
func (f *matcher) partial(b []byte, from int) int {
	for at := max(from, len(b)-f.max+1); at < len(b); at++ {
		if !f.first[b[at]] {
			continue
		}
		for n := range f.patterns {
			if len(b)-at < len(f.patterns[n].text) && f.begins(b[at:], n) {
				return at
			}
		}
	}
	return len(b)
}

// step searches b, the next part of a text. It replaces matches, or returns the error of
// hit for the first. final is how many bytes are searched completely: the rest may be the
// beginning of a match, and has to be given again with more bytes. last says that no more
// follow.
func (f *matcher) step(b []byte, last bool, hit func(of int) error) (final int, err error) {
	from := 0
	for {
		hold := len(b)
		if !last {
			hold = f.partial(b, from)
		}
		at, which := f.find(b, from)
		if at < 0 || at >= hold {
			return hold, nil
		}
		p := &f.patterns[which]
		if hit != nil {
			if err := hit(p.of); err != nil {
				return 0, err
			}
		}
		copy(b[at:], p.with)
		from = at + len(p.text)
	}
}

// in returns the token whose spelling is in s, or -1.
func (f *matcher) in(s string) int {
	if f == nil || len(s) < f.min {
		return -1
	}
	if _, which := f.find([]byte(s), 0); which >= 0 {
		return f.patterns[which].of
	}
	return -1
}

// replace returns s with all matches replaced.
func (f *matcher) replace(s string) string {
	if f == nil || len(s) < f.min {
		return s
	}
	b := []byte(s)
	if _, which := f.find(b, 0); which < 0 {
		return s
	}
	_, _ = f.step(b, true, nil) // without hit there is no error
	return string(b)
}

// A filter searches a stream. Only bytes that may be the beginning of a match wait, so a
// server that sends events is not delayed.
type filter struct {
	src     io.Reader
	matcher *matcher
	hit     func(of int) error // nil: matches are replaced
	end     func() error       // is called at the end of the stream; its error replaces io.EOF
	held    []byte
	ready   []byte
	own     []byte
	err     error
}

// Read reads into p and searches there, so that a stream needs no buffer of its own,
// unless p is too small to hold a match.
func (f *filter) Read(p []byte) (int, error) {
	for len(p) > 0 {
		if len(f.ready) > 0 {
			n := copy(p, f.ready)
			f.ready = f.ready[n:]
			return n, nil
		}
		if f.err != nil {
			return 0, f.err
		}
		work, small := p, len(p) < 2*f.matcher.max
		if small {
			if f.own == nil {
				f.own = make([]byte, 2*f.matcher.max+512)
			}
			work = f.own
		}
		n := copy(work, f.held)
		more, err := f.src.Read(work[n:])
		final, hit := f.matcher.step(work[:n+more], err != nil, f.hit)
		if hit != nil {
			f.err = hit
			return 0, hit
		}
		f.held = append(f.held[:0], work[final:n+more]...)
		if f.err = err; err == io.EOF && f.end != nil {
			if end := f.end(); end != nil {
				f.err = end
			}
		}
		if small {
			f.ready = work[:final]
		} else if final > 0 {
			return final, nil
		}
	}
	return 0, nil
}

// minSpelling is the shortest text that is searched for. Shorter ones are everywhere.
const minSpelling = 6

// patternsOf returns the patterns for one text: its spellings, each with the spelling of
// what replaces it, which has the same length as text, or is nil.
func patternsOf(of int, text, with []byte) []pattern {
	var patterns []pattern
	var instead [][]byte
	if with != nil {
		instead = spellings(with)
	}
next:
	for n, s := range spellings(text) {
		if len(s) < minSpelling {
			continue
		}
		for _, p := range patterns {
			if bytes.Equal(p.text, s) {
				continue next
			}
		}
		p := pattern{text: s, of: of}
		if with != nil {
			p.with = fit(instead[n], len(s))
		}
		patterns = append(patterns, p)
	}
	return patterns
}

// fit repeats or cuts b to n bytes.
func fit(b []byte, n int) []byte {
	return bytes.Repeat(b, n/len(b)+1)[:n]
}

// spellings returns a text in the forms in which it is often sent, always the same forms
// in the same order.
func spellings(s []byte) [][]byte {
	all := [][]byte{bytes.Clone(s)}
	// Base64 has three forms of a text, by its distance from the beginning. The bytes at
	// both ends that also depend on what is around are left out.
	for before := range 3 {
		padded := append(make([]byte, before, before+len(s)), s...)
		code := make([]byte, base64.StdEncoding.EncodedLen(len(padded)))
		base64.StdEncoding.Encode(code, padded)
		inner := code[(before*8+5)/6 : len(padded)*8/6]
		url := bytes.Clone(inner)
		for i, c := range url {
			switch c {
			case '+':
				url[i] = '-'
			case '/':
				url[i] = '_'
			}
		}
		all = append(all, inner, url)
		clear(padded)
	}
	lower := hex.AppendEncode(nil, s)
	all = append(all, lower, bytes.ToUpper(lower))
	var query, queryLower, json, jsonPlain, percent []byte
	for _, c := range s {
		code := hex.AppendEncode([]byte{'%'}, []byte{c})
		percent = append(percent, bytes.ToUpper(code)...)
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || bytes.IndexByte([]byte("-._~"), c) >= 0 {
			query, queryLower = append(query, c), append(queryLower, c)
		} else {
			query, queryLower = append(query, bytes.ToUpper(code)...), append(queryLower, code...)
		}
		plain := []byte{c}
		switch {
		case c == '"' || c == '\\':
			plain = []byte{'\\', c}
		case c < ' ':
			plain = append([]byte(`\u00`), code[1:]...)
		}
		jsonPlain = append(jsonPlain, plain...)
		if c == '<' || c == '>' || c == '&' {
			plain = append([]byte(`\u00`), code[1:]...) // as encoding/json does
		}
		json = append(json, plain...)
	}
	return append(all, query, queryLower, json, jsonPlain, percent, bytes.ToLower(percent))
}
