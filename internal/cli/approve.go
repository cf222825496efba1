package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/console"
	"github.com/cloche-dev/cloche/internal/desksocket"
)

// decisionFlags say how much is granted, and for how long.
type decisionFlags struct {
	scope, path, host, access, note string
	forTime                         time.Duration
}

func (a *app) approveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "approve",
		Short: "Decide about commands that wait for access",
		Long: `Decide about commands that wait for access. On a terminal and without a
subcommand, it asks about each request, oldest first.

Only you and root can decide; a confined command cannot. You can grant less than
was asked for, never more. A request without an answer in time is denied.`,
		Example: `  cloche approve
  cloche approve list
  cloche approve yes k3xq7a --scope session
  cloche approve yes k3xq7a --path ~/.cache/x --access read --scope timed --for 1h
  cloche approve no k3xq7a --note never`,
		Args: knownSubcommand,
		RunE: func(c *cobra.Command, _ []string) error {
			var tty *console.TTY
			if term.IsTerminal(int(a.in.Fd())) {
				tty = console.Open()
			}
			if tty == nil {
				return a.listRequests()
			}
			defer tty.Release()
			list, err := allWaiting()
			if err != nil {
				return err
			}
			return a.askAll(c.Context(), tty, list)
		},
	}
	c.AddCommand(a.approveList(), a.approveShow(), a.approveYes(), a.approveNo())
	return c
}

func (a *app) approveList() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the requests that wait", Long: "List the requests that wait, oldest first.",
		Example: "  cloche approve list --json", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.listRequests() }}
	a.jsonFlag(c, "print JSON, one request per line")
	return c
}

func (a *app) approveShow() *cobra.Command {
	c := &cobra.Command{Use: "show ID", Short: "Show a request in full", Long: "Show a request that waits in full.",
		Example: "  cloche approve show k3xq7a", Args: oneID,
		RunE: func(_ *cobra.Command, args []string) error {
			w, err := findWaiting(args[0])
			if err != nil {
				return err
			}
			return a.print(w, func(b *strings.Builder) { writeRequest(b, w.Request) })
		}}
	a.jsonFlag(c, "print JSON")
	return c
}

func (a *app) approveYes() *cobra.Command {
	var f decisionFlags
	c := &cobra.Command{Use: "yes ID", Short: "Grant a request, or a part of it",
		Long:    "Grant a request, or a part of it: a path below the requested one, read instead of\nwrite, one port of a host.",
		Example: "  cloche approve yes k3xq7a --scope always\n  cloche approve yes k3xq7a --access read", Args: oneID,
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := f.decision()
			if err != nil {
				return err
			}
			return a.decide(args[0], d)
		}}
	flags := c.Flags()
	textFlag(flags, &f.scope, "scope", "SCOPE", groupRun, "how long the grant lasts: once (this run, the default), session, timed or always")
	timeFlag(flags, &f.forTime, "for", groupRun, "how long scope timed lasts, such as 1h")
	textFlag(flags, &f.path, "path", "PATH", groupRun, "grant only this path, which must be below the requested one")
	textFlag(flags, &f.host, "host", "HOST", groupRun, "grant only this host, which must be part of the request")
	textFlag(flags, &f.access, "access", "ACCESS", groupRun, "grant only this access: read instead of write")
	textFlag(flags, &f.note, "note", "TEXT", groupRun, "a note for the log")
	return c
}

func (a *app) approveNo() *cobra.Command {
	var note string
	var rest bool
	c := &cobra.Command{Use: "no ID", Short: "Deny a request", Long: "Deny a request. The command or agent that asked gets your note, if you add one.",
		Example: "  cloche approve no k3xq7a --note never\n  cloche approve no k3xq7a --rest", Args: oneID,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.decide(args[0], grant.Decision{Note: note, Rest: rest})
		}}
	boolFlag(c.Flags(), &rest, "rest", groupRun, "also deny everything else that this run asks for")
	textFlag(c.Flags(), &note, "note", "TEXT", groupRun, "a message for the command or agent that asked")
	return c
}

func oneID(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("name one request by its id; cloche approve list shows them")
	}
	return nil
}

// decision reads the flags.
func (f *decisionFlags) decision() (grant.Decision, error) {
	d := grant.Decision{Allow: true, Scope: grant.Scope(f.scope), For: f.forTime, Host: f.host, Access: grant.Access(f.access), Note: f.note}
	if d.For != 0 && d.Scope == "" {
		d.Scope = grant.Timed
	}
	var err error
	if f.path != "" {
		d.Path, err = absolutePath(f.path)
	}
	return d, err
}

// A waiting request and the desk that it waits at.
type waiting struct {
	grant.Request
	desk desksocket.Desk
}

// allWaiting returns the requests of all desks, oldest first.
func allWaiting() ([]waiting, error) {
	desks, err := desksocket.Find()
	if err != nil {
		return nil, fmt.Errorf("cannot find the commands that wait: %w", err)
	}
	var list []waiting
	for _, d := range desks {
		for _, r := range d.Requests {
			list = append(list, waiting{r, d})
		}
	}
	slices.SortFunc(list, func(a, b waiting) int { return a.Made.Compare(b.Made) })
	return list, nil
}

func findWaiting(id string) (*waiting, error) {
	list, err := allWaiting()
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].ID == strings.ToLower(id) {
			return &list[i], nil
		}
	}
	return nil, fmt.Errorf("no request %s waits; cloche approve list shows those that do", printable(id))
}

// nobodyWaits is printed where there is nothing to decide.
const nobodyWaits = "nobody waits for a decision"

// listRequests lists the requests that wait. Root sees those of every user.
func (a *app) listRequests() error {
	list, err := allWaiting()
	if err != nil {
		return err
	}
	return printList(a, list, nobodyWaits, waitingLine)
}

func waitingLine(w *waiting) string {
	return fmt.Sprintf("%s  %s  by %s, for another %s", w.ID, wants(w.Request), asker(w.Request), time.Until(w.Expires).Round(time.Second))
}

// asker names the program that asked.
func asker(r grant.Request) string {
	switch {
	case r.Program != "":
		return r.Program
	case len(r.Command) > 0:
		return r.Command[0]
	}
	return "an agent"
}

// RequestText is what a person needs to decide about a request, as lines of text.
func RequestText(r grant.Request) string {
	var b strings.Builder
	writeRequest(&b, r)
	return b.String()
}

// writeRequest prints what a person needs to decide. The reason is written by the
// program that asks, and is marked as such: "they say".
func writeRequest(to io.Writer, r grant.Request) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(to, "%-10s %s\n", name, printable(value))
		}
	}
	line("request", r.ID)
	line("wants to", wants(r))
	line("now for", fileName(r.File))
	line("but not", grant.KeptText(r.Keeps))
	if r.Secret {
		line("warning", secretWarning(r))
	}
	line("written as", fileName(r.Written))
	line("they say", r.Reason)
	line("program", r.Program)
	line("command", shortCommand(r.Command))
	line("in", fileName(r.Workspace))
	line("refused by", r.Rule)
	line("until", r.Expires.Local().Format(time.TimeOnly))
}

func (a *app) decide(id string, d grant.Decision) error {
	w, err := findWaiting(id)
	if err != nil {
		return err
	}
	d.By = whoDecides()
	g, err := w.desk.Decide(w.ID, d)
	if err != nil {
		return err
	}
	a.sayDecided(w.Request, d, g)
	return nil
}

func (a *app) sayDecided(r grant.Request, d grant.Decision, g *grant.Grant) {
	verb, what := decided(&r, d, g)
	fmt.Fprintf(a.out, "%s  %s\n", verb, printable(what))
}

// decided says what was granted and what in it stays closed, or what was refused.
func decided(r *grant.Request, d grant.Decision, g *grant.Grant) (verb, what string) {
	if g != nil {
		what = g.String()
		if text := grant.KeptText(r.StaysClosed(g)); text != "" {
			what += ", but not " + text
		}
		return "granted", what
	}
	what = r.String()
	if d.Rest {
		what += ", and all else that the run asks for"
	}
	return "refused", what
}

// whoDecides is the name that goes into the record.
func whoDecides() string {
	if name := os.Getenv("USER"); name != "" {
		return name
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

// askAll asks about each request.
func (a *app) askAll(ctx context.Context, t console.Terminal, list []waiting) error {
	if len(list) == 0 {
		fmt.Fprintln(a.out, nobodyWaits)
		return nil
	}
	for i := range list {
		more, err := a.askOne(ctx, t, &list[i])
		if !more || err != nil {
			return err
		}
	}
	return nil
}

// askOne asks until there is an answer. It reports whether to ask about the next
// request, too: the end of input and Ctrl-C end the questions.
func (a *app) askOne(ctx context.Context, t console.Terminal, w *waiting) (more bool, err error) {
	prompt, err := console.Start(ctx, t)
	if err != nil {
		return false, fmt.Errorf("ask on the terminal: %w; decide with cloche approve yes ID, or no ID", err)
	}
	defer prompt.Close()
	writeRequest(prompt, w.Request)
	list := append(choicesFor(w.Request, w.desk.Info.Session), choice{word: "later", help: "leave it to be decided later"})
	for {
		answer, err := prompt.Answer(ctx, func(code string) string { return choiceLine(list, code, " it") })
		if errors.Is(err, console.ErrTooMany) {
			return false, fmt.Errorf("ask on the terminal: %w; decide with cloche approve yes %s, or no %s", err, w.ID, w.ID)
		}
		if err != nil {
			fmt.Fprint(prompt, "\r\n")
			return false, nil
		}
		d, known := chosen(list, answer)
		switch {
		case answer.Text == "later":
			return true, nil
		case !known:
			fmt.Fprint(prompt, choiceHelp(list))
			if w.Secret {
				fmt.Fprintf(prompt, "  A secret is given for longer only by name: cloche approve yes %s --scope always\r\n", printable(w.ID))
			}
			continue
		}
		d.By = whoDecides()
		g, err := w.desk.Decide(w.ID, d)
		if errors.Is(err, grant.ErrNotPending) {
			fmt.Fprint(prompt, "it does not wait any more\r\n")
			return true, nil
		}
		if err != nil {
			a.words.fail(err)
			continue
		}
		a.sayDecided(w.Request, d, g)
		return true, nil
	}
}

// absolutePath makes a path that was typed absolute; "~" is the home folder.
func absolutePath(path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok || path == "~" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("%s: %w; write it from / on", path, err)
		}
		return filepath.Join(home, rest), nil
	}
	return filepath.Abs(path)
}
