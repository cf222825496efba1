package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/console"
	"github.com/cloche-dev/cloche/plan"
)

// sayDenied tells what was refused: in a few lines, or as the text for an agent.
func (a *app) sayDenied(r *cloche.Result, forAgent bool) {
	if r == nil {
		return
	}
	lines := r.DeniedLines("--report FILE or cloche log")
	if forAgent {
		lines = strings.Split(strings.TrimSuffix(r.DeniedText(), "\n"), "\n")
	}
	for _, line := range lines {
		if line != "" && !a.words.told[line] {
			a.words.warn(line)
		}
	}
	if len(lines) > 0 && a.where != nil && changesOutside(r, a.where.workspace) {
		a.words.warn(a.where.whereabouts())
	}
}

// changesOutside reports whether a change of a file outside of the workspace was denied:
// then it matters which folder that is.
func changesOutside(r *cloche.Result, workspace string) bool {
	root, err := filepath.EvalSymlinks(workspace)
	return err == nil && slices.ContainsFunc(r.Denied, func(d cloche.Denial) bool {
		rel, err := filepath.Rel(root, d.Path)
		outside := err == nil && !filepath.IsLocal(rel)
		return outside && d.NotWritable()
	})
}

const (
	// tellAfter is how long a command has gone on after a refusal before it is told.
	tellAfter = 2 * time.Second
	tellEvery = time.Second
)

// tellWhileRunning tells the first refusal of each kind while the command goes on: to
// a person at a terminal, and to an agent. Otherwise a command that tries again and
// again would leave its user without a word. A line that cannot be printed now, because
// the command draws on the screen, is tried later.
func (a *app) tellWhileRunning(cmd *cloche.Cmd, forAgent bool) (stop func()) {
	file, terminal := a.err.(*os.File)
	terminal = terminal && isTerminal(file)
	if a.words.quiet || !terminal && !forAgent {
		return func() {}
	}
	var print func(string) bool
	if terminal && a.ownTerminal {
		print = cmd.PrintLine
	}
	done, over := make(chan struct{}), make(chan struct{})
	timer := time.AfterFunc(tellAfter, func() {
		defer close(over)
		tick := time.NewTicker(tellEvery)
		defer tick.Stop()
		for {
			for _, line := range cmd.DeniedFirst(time.Now().Add(-tellAfter)) {
				if !terminal || a.ownTerminal || console.ReadsLines(file) {
					a.words.sayOnce(line, print)
				}
			}
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		if !timer.Stop() {
			<-over
		}
	}
}

// sayNetwork tells what came up about the network while the command ran.
func (a *app) sayNetwork(r *cloche.Result) {
	if r == nil {
		return
	}
	for _, n := range r.Notices {
		if n.Kind == plan.NoticeNetwork {
			a.words.warn(noticeLine(n))
		}
	}
}
