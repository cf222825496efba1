package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/audit"
)

// W8: a run is one line, with how it went and how long it took, also where its
// beginning is older than what is shown.
func TestLogEntries(t *testing.T) {
	zero := 0
	at := time.Date(2031, 3, 1, 12, 0, 0, 0, time.Local)
	start := audit.Event{Kind: audit.Start, Run: "a", Time: at, Backend: "native", Argv: []string{"make"}}
	end := start
	end.Kind, end.ExitCode, end.DurationMS, end.Time = audit.End, &zero, 1500, at.Add(1500*time.Millisecond)
	for _, c := range []struct {
		events []audit.Event
		want   string
	}{
		{[]audit.Event{start, end}, "2031-03-01 12:00:00  exit 0    native      1.5s  make\n"},
		{[]audit.Event{end}, "2031-03-01 12:00:01  exit 0    native      1.5s  make\n"},
		{[]audit.Event{start}, "2031-03-01 12:00:00  no end    native         -  make\n"},
	} {
		var b strings.Builder
		writeEntries(&b, joinRuns(c.events), 200)
		if b.String() != c.want {
			t.Errorf("%q, want %q", b.String(), c.want)
		}
	}
}
