package backendtest

import (
	"strings"

	"github.com/cloche-dev/cloche"
)

// warmth is how warm the sessions of a run are.
type warmth string

const (
	cold     warmth = ""
	warm     warmth = "warm"
	warmFast warmth = "fast"
)

// options make a session that warm.
func (w warmth) options() []cloche.Option {
	switch w {
	case warm:
		return []cloche.Option{cloche.WithWarm()}
	case warmFast:
		return []cloche.Option{cloche.WithWarmFast()}
	}
	return nil
}

// warmUp runs a command that does nothing in a session that keeps its sandbox
// ready, and checks that it does. Where that command is refused, so is the next
// one, which tells why.
func (b *box) warmUp(s *cloche.Session) {
	if b.c.warm == cold {
		return
	}
	name, args := b.c.probeArgs()
	first := s.Command(b.c.ctx, name, args...)
	first.Env = b.environ
	r, err := first.Capture()
	if err != nil {
		b.c.Logf("the first command of the session: %v", err)
		return
	}
	for _, n := range r.Notices {
		if strings.HasPrefix(n.Text, "the session is not warm") && !b.policy.Privileged {
			b.c.Errorf("%s", n.Text)
		}
	}
}
