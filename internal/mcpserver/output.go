package mcpserver

import (
	"context"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cloche-dev/cloche/internal/show"
)

// A tail keeps the end of what is written to it.
type tail struct {
	limit int
	live  *live

	mu    sync.Mutex
	kept  []byte
	total int64
}

// Write never fails and never waits.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.total += int64(len(p))
	t.kept = keepEnd(t.kept, p, t.limit)
	t.mu.Unlock()
	t.live.add(p)
	return len(p), nil
}

// keepEnd appends p and drops what is too much at the front. The slice grows to
// twice the limit before it is moved, so that many small writes cost little.
func keepEnd(kept, p []byte, limit int) []byte {
	if len(p) >= limit {
		return append(kept[:0], p[len(p)-limit:]...)
	}
	kept = append(kept, p...)
	if len(kept) > 2*limit {
		kept = append(kept[:0], kept[len(kept)-limit:]...)
	}
	return kept
}

// text is what was kept, and how much was written in all.
func (t *tail) text() (text string, total int64, cut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.kept[max(0, len(t.kept)-t.limit):]
	cut = t.total > int64(len(kept))
	if cut {
		kept = fromRune(kept)
	}
	return asText(kept), t.total, cut
}

// fromRune drops the rest of a character at the front.
func fromRune(b []byte) []byte {
	for i := 0; i < len(b) && i < utf8.UTFMax; i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

// Bounds on what a client receives while a command runs.
const (
	liveInterval = 100 * time.Millisecond
	liveLimit    = 8 << 10
)

// live passes output on while it is made, as far as the client keeps up: what it
// is too slow for is left out here, and is in the answer.
type live struct {
	call call
	wake chan struct{}

	mu    sync.Mutex
	fresh []byte
	total int64
}

// follow starts to pass output on; stop ends that after the last of it.
func follow(ctx context.Context, c call) (l *live, stop func()) {
	l = &live{call: c, wake: make(chan struct{}, 1)}
	if c.request.Params.GetProgressToken() == nil {
		return nil, func() {}
	}
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() { defer close(ended); l.pass(ctx) }()
	return l, func() { cancel(); <-ended }
}

func (l *live) add(p []byte) {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.total += int64(len(p))
	l.fresh = keepEnd(l.fresh, p, liveLimit)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *live) pass(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		l.mu.Lock()
		text, total := asText(l.fresh[max(0, len(l.fresh)-liveLimit):]), l.total
		l.fresh = l.fresh[:0]
		l.mu.Unlock()
		l.call.notify(ctx, float64(total), text)
		select {
		case <-ctx.Done():
			return
		case <-time.After(liveInterval):
		}
	}
}

// asText makes text of bytes: JSON holds nothing else.
func asText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// visible quotes a name that would not read as what it is.
var visible = show.Visible

// shortened cuts a name that a client made up, for messages.
func shortened(s string) string {
	const limit = 200
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return visible(s)
}
