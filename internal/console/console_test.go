package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A script is a terminal that has input before the question, and types more once
// there is one. A # is the code.
type script struct {
	bytes.Buffer
	before, after string
}

var codePattern = regexp.MustCompile(`code (\d{4})`)

func (s *script) Key(ctx context.Context) (byte, error) {
	from := &s.before
	if codes := codePattern.FindAllStringSubmatch(s.String(), -1); codes != nil {
		from = &s.after
		if s.after == "" {
			return 0, io.EOF
		}
		if s.after[0] == '#' {
			s.after = codes[len(codes)-1][1] + s.after[1:]
		}
	}
	if *from == "" {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	key := (*from)[0]
	*from = (*from)[1:]
	return key, nil
}

func answerTo(t *testing.T, before, after string) (Answer, error) {
	t.Helper()
	s := &script{before: before, after: after}
	p, err := Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	return p.Answer(t.Context(), func(code string) string { return "code " + code })
}

// N2 W8: input from before the question is gone, escape sequences are no answer, and
// an answer with the code is one.
func TestAnswer(t *testing.T) {
	for _, c := range []struct {
		before, after string
		want          Answer
	}{
		{"", "#\r", Answer{"", true}},
		{"", "# always\r", Answer{"always", true}},
		{"yes\r1\r", "no\r", Answer{"no", false}},
		{"\x1b[?1;2", "#  hour \n", Answer{"hour", true}},
		{"", "\x1b[?1;2c#\x1b]lyes\x1b\\\x1b[24;80R\r", Answer{"", true}},
		{"", "\x1bP>|tmux 3.5a\x1b\\no\x1bOA\r", Answer{"no", false}},
		{"", "\x1bP>|no end\rno\r", Answer{"", false}},
		{"", "x#\r", Answer{"x", false}},
		{"", "nothing\x15#\x7f\x7f\x7f\x7fno\r", Answer{"no", false}},
	} {
		got, err := answerTo(t, c.before, c.after)
		if strings.HasPrefix(c.after, "x") {
			got.Text = got.Text[:1]
		}
		if err != nil || got != c.want {
			t.Errorf("%q, %q: %+v, %v; want %+v", c.before, c.after, got, err, c.want)
		}
	}
	if _, err := answerTo(t, "", "ab\x03"); !errors.Is(err, ErrInterrupt) {
		t.Errorf("Ctrl-C: %v", err)
	}
}

// N2 W8: no random replies hold the code, and a prompt gives up.
func TestRandomReplies(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	parts := []string{"\x1b[", "\x1b]", "\x1bP", "\x1b\\", "\r", "\n", "yes", "always", "1", "9", ";", "y", "t", "\x07", "?", "$"}
	for range 200 {
		var b strings.Builder
		for range r.IntN(60) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		s := &script{after: b.String()}
		p := &Prompt{t: s}
		for {
			a, err := p.Answer(t.Context(), func(code string) string { return "code " + code })
			if err != nil {
				break
			}
			if a.Coded {
				t.Fatalf("%q is taken for the code", b.String())
			}
		}
	}
	p := &Prompt{t: &script{after: strings.Repeat("y\r", 1000)}}
	for n := 0; ; n++ {
		if _, err := p.Answer(t.Context(), func(code string) string { return "code " + code }); errors.Is(err, ErrTooMany) {
			break
		} else if err != nil || n > maxLines {
			t.Fatalf("after %d answers: %v", n, err)
		}
	}
}

// A terminal that never stops sending is not asked on.
func TestNoisy(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := Start(ctx, endless{}); !errors.Is(err, ErrNoisy) {
		t.Error(err)
	}
}

type endless struct{}

func (endless) Write(b []byte) (int, error) { return len(b), nil }
func (endless) Key(context.Context) (byte, error) {
	time.Sleep(time.Millisecond) // a key each millisecond, without end
	return 'y', nil
}
