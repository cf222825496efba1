//go:build amd64 || arm64

package notify

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
)

// clockGrain is how far the change times of files may lie behind the clock: a tick,
// of up to 10 ms, before Linux 6.13.
const clockGrain = 20 * time.Millisecond

// refusesLate refuses to open a file that would have been hidden if its folder had
// been looked at before the command started (plan.Late). Where the kernel goes on
// with a call, another thread can still put another name there: this is for the
// accident, and the plan says so.
func (c *call) refusesLate(path string) bool {
	if c.b.config.Masks == nil {
		return false
	}
	v, file, ok := c.b.config.Masks().Late(path)
	if !ok || c.b.asks.covers(path) || !c.b.isLate(file) {
		return false
	}
	c.refuse(plan.OpRead, path, v)
	return true
}

// isLate reports whether a file of the host was there before the command. What the
// command made, or changed, is its own; so is what git has as it is.
func (b *Broker) isLate(file string) bool {
	var st unix.Stat_t
	if unix.Stat(file, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG && st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return false
	}
	if !time.Unix(st.Ctim.Unix()).Before(b.began.Add(-clockGrain)) || !may(file, unix.R_OK) {
		return false
	}
	return b.config.Tracked == nil || !b.config.Tracked(file)
}

// covers reports whether somebody gave a path, or a folder around it.
func (a *asks) covers(path string) bool {
	if !a.given() {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.lines {
		if pathx.Within(g.Path.Path, path) {
			return true
		}
	}
	return false
}
