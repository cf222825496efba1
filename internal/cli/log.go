package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/internal/machine"
)

// logFlags are the flags of log.
type logFlags struct {
	verify  bool
	count   int
	since   time.Duration
	network networkFlags
}

func (a *app) logCommand() *cobra.Command {
	l := &logFlags{}
	c := &cobra.Command{
		Use:   "log [flags]",
		Short: "Show the audit log, or check that it is unchanged",
		Long: `Show the runs and decisions of the audit log, oldest first.

With --network, show connections instead, also denied ones: when each ended, the
verdict, the direction, how long it was open, bytes sent and received, the host,
the program, and the rule.

With --verify, check the log: it names lines that were changed, removed, inserted
or cut off, and the exit status is 1 if there are any.`,
		Example: `  cloche log -n 20
  cloche log --since 24h --json
  cloche log --network --host '*.example.com' --verdict deny
  cloche log --verify`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			dirs, err := machine.OwnDirs()
			if err != nil {
				return err
			}
			if l.verify {
				return a.verifyLog(auditDir(dirs))
			}
			return a.showLog(auditDir(dirs), l)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	numberFlag(f, &l.count, "lines", "n", "N", groupOutput, "show the last N entries only")
	timeFlag(f, &l.since, "since", groupOutput, "show only the last TIME, such as 24h")
	boolFlag(f, &l.network.on, "network", groupOutput, "show connections, one per line")
	textFlag(f, &l.network.host, "host", "HOST", groupOutput, "show only connections to HOST[:PORT]: a name, *.NAME, an address or a CIDR")
	textFlag(f, &l.network.verdict, "verdict", "VERDICT", groupOutput, "show only connections with this verdict: allow or deny")
	a.jsonFlag(c, "print JSON, one event per line")
	boolFlag(f, &l.verify, "verify", groupOutput, "check that nobody changed the log")
	return c
}

func (a *app) verifyLog(dir string) error {
	report, err := audit.Verify(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("there is no audit log at %s yet; it starts with the first run", dir)
	}
	if err != nil {
		return err
	}
	return deniedUnless(len(report.Findings) == 0, a.print(report, func(b *strings.Builder) {
		for _, f := range report.Findings {
			b.WriteString(printable(f.String()) + "\n")
		}
		if len(report.Findings) == 0 {
			fmt.Fprintf(b, "the chain holds: %s, %s\n", plural(report.Count, "line"), plural(uint64(len(report.Files)), "file"))
		}
		fmt.Fprintf(b, "last hash %s\n", report.Hash)
	}))
}

// plural is a count with the word for what is counted.
func plural(n uint64, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.FormatUint(n, 10) + " " + what
}

// showLog prints the entries that the flags choose.
func (a *app) showLog(dir string, l *logFlags) error {
	filter := audit.Filter{}
	if l.since != 0 {
		filter.Since = time.Now().Add(-l.since)
	}
	if l.network.wanted() {
		if err := l.network.filter(&filter); err != nil {
			return err
		}
	}
	var events []audit.Event
	var damaged []error
	for e, err := range audit.Read(dir, filter) {
		if _, ok := errors.AsType[*audit.LineError](err); ok {
			damaged = append(damaged, err)
		} else if err != nil {
			return err
		} else {
			events = append(events, e)
		}
	}
	err := a.writeEvents(events, l)
	if len(damaged) > 0 {
		a.words.fail(errors.Join(damaged...))
	}
	return err
}

func (a *app) writeEvents(events []audit.Event, l *logFlags) error {
	var b strings.Builder
	switch {
	case a.json: // one event per line, as the log has them
		return printList(a, lastOf(events, l.count), "", nil)
	case l.network.wanted():
		writeConnections(&b, lastOf(events, l.count), a.width())
	default:
		writeEntries(&b, lastOf(joinRuns(events), l.count), a.width())
	}
	return a.printText(b.String())
}

// lastOf returns the last n of a list, all of it for 0.
func lastOf[T any](list []T, n int) []T {
	if n <= 0 || n >= len(list) {
		return list
	}
	return list[len(list)-n:]
}

// defaultWidth is that of output which is no terminal.
const defaultWidth = 160

// width is how wide a line may get.
func (a *app) width() int {
	if f, ok := a.out.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w >= 60 {
			return w
		}
	}
	return defaultWidth
}

// An entry is one line of the table: a run with its end, or another event.
type entry struct {
	event audit.Event
	last  audit.Event // the end of a run, if it is known; otherwise event
}

// joinRuns puts the end of each run to its start. Connections are left out:
// there can be thousands of a run.
func joinRuns(events []audit.Event) []entry {
	var out []entry
	started := map[string]int{}
	for _, e := range events {
		if e.Kind == audit.Connected {
			continue
		}
		i, known := started[e.Run]
		if e.Kind == audit.End && known && e.Run != "" {
			out[i].last = e
			continue
		}
		if e.Kind == audit.Start {
			started[e.Run] = len(out)
		}
		out = append(out, entry{e, e})
	}
	return out
}

func writeEntries(b *strings.Builder, entries []entry, width int) {
	for _, e := range entries {
		head := fmt.Sprintf("%s  %-9s %-7s %8s  ", e.event.Time.Local().Format("2006-01-02 15:04:05"), e.outcome(), orDash(e.event.Backend), e.duration())
		b.WriteString(head + cut(printable(e.words()), width-len(head)) + "\n")
	}
}

func orDash(s string) string { return cmp.Or(printable(s), "-") }

// outcome is how it went, in one word.
func (e entry) outcome() string {
	switch last := &e.last; {
	case last.Kind == audit.Start:
		return "no end"
	case last.Kind != audit.End:
		return printable(string(last.Kind))
	case last.TimedOut:
		return "timed out"
	case last.Exceeded != "":
		return "limit"
	case last.ExitCode != nil:
		return "exit " + strconv.Itoa(*last.ExitCode)
	default:
		return "failed"
	}
}

// duration is how long a run took. Its beginning may be older than what is shown.
func (e entry) duration() string {
	if e.last.Kind != audit.End || e.last.ExitCode == nil {
		return "-"
	}
	return (time.Duration(e.last.DurationMS) * time.Millisecond).String()
}

// words are the command, or what else the event is about.
func (e entry) words() string {
	about := strings.TrimSpace(e.event.Verdict + " " + e.event.Access + " " + e.event.Subject)
	switch {
	case e.event.Kind == audit.Grant && len(e.event.Argv) > 0:
		return about + " for " + commandLine(e.event.Argv)
	case e.event.Refusal != "":
		return "(" + strings.TrimSuffix(e.event.Refusal+", "+e.event.Cause, ", ") + ") " + commandLine(e.event.Argv)
	case len(e.event.Argv) > 0:
		return commandLine(e.event.Argv)
	case e.event.Subject != "":
		return about
	default:
		return e.event.Reason
	}
}
