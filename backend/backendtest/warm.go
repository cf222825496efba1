package backendtest

import (
	"strings"

	"github.com/cloche-dev/cloche"
)

// session returns the session options for these Options.
func (o *Options) session() []cloche.Option {
	switch {
	case o.WarmFast:
		return []cloche.Option{cloche.WithWarmFast()}
	case o.Warm:
		return []cloche.Option{cloche.WithWarm()}
	}
	return nil
}

// warmUp runs a command that does nothing in a warm session, and checks that the
// session is warm. If that command is refused, so is the next one, which then reports
// why.
func (b *box) warmUp(s *cloche.Session) {
	if !b.c.options.Warm && !b.c.options.WarmFast {
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
