package cli

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progressAfter is how long work may take before a person is told what it is.
const progressAfter = 400 * time.Millisecond

// progress says on a terminal what is being done, once that takes long. The
// returned function takes the line back, and has to be called before anything else
// is said.
func (w *words) progress(text string) (done func()) {
	if !isTerminal(w.to) || w.quiet || w.raw {
		return func() {}
	}
	return progressOn(w.to, text, progressAfter)
}

// isTerminal reports whether lines can be taken back there.
func isTerminal(to io.Writer) bool {
	f, ok := to.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

func progressOn(to io.Writer, text string, after time.Duration) (done func()) {
	var mu sync.Mutex
	var shown, ended bool
	timer := time.AfterFunc(after, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			shown = true
			_, _ = io.WriteString(to, "cloche: "+text+"…")
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		if shown && !ended {
			_, _ = io.WriteString(to, "\r\x1b[K")
		}
		ended = true
	}
}
