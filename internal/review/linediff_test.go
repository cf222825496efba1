package review

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// A patch with all hunks gives the new text, with none the old one, and its edits lie in order.
func TestPatch(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func() []byte {
		var b strings.Builder
		for range random.IntN(60) {
			b.WriteString(strings.Repeat("x", random.IntN(8)))
			if random.IntN(20) > 0 {
				b.WriteByte('\n')
			}
		}
		return []byte(b.String())
	}
	for range 2000 {
		old, now := text(), text()
		if random.IntN(2) == 0 { // alike
			lines := splitLines(old)
			var out [][]byte
			for _, line := range lines {
				if random.IntN(10) > 0 {
					out = append(out, line)
				}
				if random.IntN(10) == 0 {
					out = append(out, []byte("new\n"))
				}
			}
			now = bytes.Join(out, nil)
		}
		p := NewPatch(old, now)
		if got := p.With(p.Hunks); !bytes.Equal(got, now) {
			t.Fatalf("all hunks of %q to %q give %q", old, now, got)
		}
		if got := p.With(nil); !bytes.Equal(got, old) {
			t.Fatalf("no hunks of %q to %q give %q", old, now, got)
		}
		if same := bytes.Equal(old, now); same != (len(p.Hunks) == 0) {
			t.Fatalf("%q to %q has %d hunks", old, now, len(p.Hunks))
		}
	}
}

// A text of a hostile command takes no more time than its length allows.
func TestPatchOfHostileText(t *testing.T) {
	a := bytes.Repeat([]byte("a\nb\n"), 200_000)
	b := bytes.Repeat([]byte("b\na\nc\n"), 200_000)
	if got := NewPatch(a, b); !bytes.Equal(got.With(got.Hunks), b) {
		t.Error("the patch does not give the new text")
	}
}

// Texts in which each cut at a unique line makes just one more line unique do not take the square of their length.
func TestPatchOfNestedText(t *testing.T) {
	text := func(between string) []byte {
		var b strings.Builder
		for k := range 300_000 {
			fmt.Fprintf(&b, "%s\nv%d\nv%d\n", between, k+1, k)
		}
		return []byte(b.String())
	}
	old, now := text("a"), text("b")
	done := make(chan *Patch, 1)
	go func() { done <- NewPatch(old, now) }()
	select {
	case p := <-done:
		if string(p.With(p.Hunks)) != string(now) {
			t.Error("the hunks do not make the new text")
		}
	case <-time.After(testenv.Patience):
		t.Fatal("the comparison takes too long")
	}
}
