package inspect

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"
)

// plainReplace does what a matcher does, one position after the other.
func plainReplace(b []byte, texts, withs [][]byte) []byte {
	var out []byte
	for i := 0; i < len(b); {
		best := -1
		for n, text := range texts {
			if bytes.HasPrefix(b[i:], text) && (best < 0 || len(text) > len(texts[best])) {
				best = n
			}
		}
		if best < 0 {
			out = append(out, b[i])
			i++
			continue
		}
		out = append(out, withs[best]...)
		i += len(texts[best])
	}
	return out
}

// splitReader gives its bytes in pieces of the sizes in cuts, again and again.
type splitReader struct {
	b, cuts []byte
	n       int
}

func (s *splitReader) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := min(len(s.b), len(p))
	if len(s.cuts) > 0 {
		n = min(n, int(s.cuts[s.n%len(s.cuts)]))
		s.n++
	}
	copy(p, s.b[:n])
	s.b = s.b[n:]
	return n, nil
}

// The result does not depend on how a stream is split, on the size of the reader's buffer,
// or on the mask, and is what plainReplace gives.
func FuzzFilter(f *testing.F) {
	f.Add([]byte("the secret is sesecretsecre"), []byte("secret"), []byte("recretsec"), []byte{1}, uint8(3))
	f.Add([]byte("aaaaaaaaaaaaabaaaaaaaab"), []byte("aaaaaab"), []byte("aaab"), []byte{1, 5, 2}, uint8(0))
	f.Add([]byte("ababababababab"), []byte("abab"), []byte("ababab"), []byte{2, 1}, uint8(200))
	f.Add(bytes.Repeat([]byte("xyz"), 300), []byte(strings.Repeat("zxy", 90)), []byte("zx"), []byte{7, 0, 100}, uint8(9))
	f.Fuzz(func(t *testing.T, text, one, two, cuts []byte, size uint8) {
		if len(one) < 2 || len(two) < 2 || bytes.Equal(one, two) || len(text) > 5000 {
			return
		}
		zero := true
		for _, c := range cuts {
			zero = zero && c == 0
		}
		if zero {
			cuts = nil // a reader that never gives anything
		}
		texts := [][]byte{one, two}
		withs := [][]byte{bytes.Repeat([]byte{'1'}, len(one)), bytes.Repeat([]byte{'2'}, len(two))}
		want := plainReplace(text, texts, withs)
		var m mask
		if size%2 == 0 {
			rand.Read(m[:])
		}
		var patterns []pattern
		for n := range texts {
			p := pattern{text: bytes.Clone(texts[n]), with: withs[n], of: n}
			m.apply(p.text)
			patterns = append(patterns, p)
		}
		matcher := newMatcher(patterns, &m)
		var got []byte
		r := &filter{src: &splitReader{b: bytes.Clone(text), cuts: cuts}, matcher: matcher}
		buffer := make([]byte, 1+int(size)*5)
		for {
			n, err := r.Read(buffer)
			got = append(got, buffer[:n]...)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("filtered %q\nwant     %q", got, want)
		}
		// With hit, nothing from the first match on gets through.
		hit := errors.New("hit")
		guarded, err := io.ReadAll(&filter{src: &splitReader{b: bytes.Clone(text), cuts: cuts}, matcher: matcher, hit: func(int) error { return hit }})
		contains := bytes.Contains(text, one) || bytes.Contains(text, two)
		if contains != errors.Is(err, hit) || !bytes.HasPrefix(text, guarded) || bytes.Contains(guarded, one) || bytes.Contains(guarded, two) {
			t.Errorf("guarded %q, %v", guarded, err)
		}
	})
}

// A reader gets what has no beginning of a match at once.
func TestFilterDoesNotDelay(t *testing.T) {
	in, out := io.Pipe()
	defer in.Close()
	r := &filter{src: in, matcher: newMatcher(patternsOf(0, []byte(secretValue), []byte(placeholder)), nil)}
	b := make([]byte, 4096)
	for _, s := range []string{"data: 1\n\n", "data: x", secretValue + "\n"} {
		go io.WriteString(out, s)
		n, err := r.Read(b)
		if err != nil || string(b[:n]) != strings.ReplaceAll(s, secretValue, placeholder) {
			t.Errorf("read %q, %v", b[:n], err)
		}
	}
}

// An error of the source is passed on, after what came before it.
func TestFilterPassesErrors(t *testing.T) {
	broken := errors.New("broken")
	src := io.MultiReader(strings.NewReader("good"), &failing{broken})
	got, err := io.ReadAll(&filter{src: src, matcher: newMatcher(patternsOf(0, []byte(secretValue), []byte(placeholder)), nil)})
	if string(got) != "good" || !errors.Is(err, broken) {
		t.Errorf("%q, %v", got, err)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// A value that is longer or shorter than its placeholder is replaced in its own length.
func TestSpellingsKeepTheLength(t *testing.T) {
	for _, value := range []string{secretValue, "short1", strings.Repeat("long", 200), `sp"e\c<ial/+&=%` + "\t", "\xff\xfe\xfd\xfc\xfb\xfa"} {
		for _, p := range patternsOf(0, []byte(value), fit([]byte(placeholder), len(value))) {
			if len(p.with) != len(p.text) {
				t.Errorf("%q becomes %q", p.text, p.with)
			}
		}
	}
}

// The values of a vault are not in memory in clear, and the last ones are found.
func TestVault(t *testing.T) {
	v := newVault()
	if v.search().in(secretValue) >= 0 || v.search().replace("x") != "x" {
		t.Error("an empty vault finds something")
	}
	values := make([]string, maxValues+3)
	for n := range values {
		values[n] = strings.Repeat(string(rune('a'+n)), 20) + "-value"
		v.learn(1, []byte(values[n]), placeholder)
		v.learn(1, []byte(values[n]), placeholder)
	}
	v.learn(2, []byte("tiny"), placeholder)
	m := v.search()
	for n, value := range values {
		if found := m.in("x"+value) == 1; found != (n >= len(values)-maxValues) {
			t.Errorf("value %d: found %v", n, found)
		}
		if got := m.replace("<" + value + ">"); n > 3 && got != "<"+placeholder[:len(value)]+">" {
			t.Errorf("replaced by %q", got)
		}
		for _, p := range m.patterns {
			if bytes.Contains(p.text, []byte(value)[:8]) {
				t.Error("a value is in memory in clear")
			}
		}
	}
}
