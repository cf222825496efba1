package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/console"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// killDelay is the time that a command which is out of time has to clean up.
const killDelay = 2 * time.Second

// runFlags are the flags of the commands that run something.
type runFlags struct {
	sessionFlags
	askFlags
	tty    string
	report reportFlags
	// forAgent: print denials as a text for an agent.
	forAgent bool
	// dieWithParent: the command ends when the program that started cloche does.
	dieWithParent bool
	// apart: cloche's own files must not be in the workspace.
	apart bool
	// prepare, if not nil, changes the command before it starts. The returned function
	// releases what prepare opened.
	prepare func(*cloche.Cmd) (done func())
	// kept, if not nil, is the call of another process, which this one runs in a warm session.
	kept *keptCall
	// files are texts that the command sees at these paths; the host has no such files.
	files map[string]string
}

func (r *runFlags) add(a *app, c *cobra.Command) {
	r.sessionFlags.add(c)
	r.report.fd = noFD
	f := c.Flags()
	f.SetInterspersed(false)
	r.askFlags.add(f)
	textFlag(f, &r.tty, "tty", "WHEN", groupRun, "give the command its own terminal: auto, always or never (default auto)").values = names("auto", "always", "never")
	boolFlag(f, &r.dieWithParent, "die-with-parent", groupRun, "stop the command when the program that started cloche ends, even if it is killed")
	a.jsonFlag(c, "print no messages; write the report as a JSON object to standard error, or where --report or --report-fd says")
	boolFlag(f, &r.forAgent, "for-agent", groupOutput, "print denials as a text for an agent")
	textFlag(f, &r.report.file, "report", "FILE", groupOutput, "write the report to FILE")
	numberFlag(f, &r.report.fd, "report-fd", "", "N", groupOutput, "write the report to the open descriptor N")
}

func (a *app) runCommand() *cobra.Command {
	r := &runFlags{}
	var script string
	c := &cobra.Command{
		Use:   "run [flags] [--] CMD [ARG…]",
		Short: "Run one command in a sandbox",
		Long: `Run one command in a sandbox.

Everything from CMD on belongs to the command; a "--" before it is optional. The
command's standard input, output and error are passed on untouched.

The exit status is the command's own, or
  124  the command timed out
  125  cloche could not or would not run it, or ended it for another limit
  126  the command was found and cannot be executed
  127  the command was not found
  128+N  the command was ended by signal N`,
		Example: `  cloche run -- npm test
  cloche run --rw ../shared --timeout 10m -- make -j8
  cloche run --preset strict --net loopback -- ./server --self-test
  cloche run --allow proxy.golang.org:443 --allow sum.golang.org -- go test ./...
  cloche run --publish 8080:80 --forward 5432 -- ./server
  cloche run --ask -- make
  cloche run -c 'make && ./check | tee log'`,
		Args: func(c *cobra.Command, args []string) error {
			switch scripted := c.Flags().Changed("command"); {
			case scripted && len(args) > 0:
				return fmt.Errorf("-c has the whole script, and %q is beside it; write one of them", args[0])
			case scripted:
				return nil
			}
			return needCommand(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"sh", "-c", script}
			}
			return a.run(c.Context(), r, args)
		},
	}
	r.add(a, c)
	c.Flags().VarP(&flagValue{group: groupRun, placeholder: "SCRIPT", values: names(), set: func(value string) error { script = value; return nil }},
		"command", "c", "have sh run SCRIPT, in place of CMD")
	return c
}

// uncollected is how long a run does not collect garbage below 16 MB: collecting the few
// megabytes of a start takes a tenth of its processor time.
const (
	uncollected      = time.Second
	startGarbageGoal = 400
)

// run runs a command, prints the messages about it and writes the report.
func (a *app) run(ctx context.Context, r *runFlags, argv []string) error {
	if r.kept == nil {
		usual := debug.SetGCPercent(startGarbageGoal)
		defer time.AfterFunc(uncollected, func() { debug.SetGCPercent(usual) }).Stop()
	}
	report, err := r.report.open(a)
	if err != nil {
		return err
	}
	a.words.quiet = a.json
	outcome := runReport{Command: argv}
	err = a.runReported(ctx, r, &outcome)
	if elsewhere, ok := errors.AsType[*inspectElsewhere](err); ok {
		err = elsewhere.start(a.args, r.report.fd)
		recordRefusal(argv, err)
	}
	if r.kept != nil && err != nil && !outcome.Ran {
		if kind := cloche.RefusalOf(err).Kind; kind == "setup" || kind == "error" {
			return errNoSandbox
		}
	}
	outcome.Status = statusOf(err)
	err = hintShell(argv, err)
	if err != nil && !outcome.Ran {
		why := cloche.RefusalOf(err)
		outcome.Refusal = &why
	}
	if outcome.Result != nil {
		a.sayResult(outcome.Result, r.forAgent)
	}
	if outcome.Ran && outcome.Review != "" {
		a.words.say(yellow, "what the command wrote is kept aside: "+reviewCommand(outcome.Review)+" shows it")
	}
	a.sayEnd(err)
	outcome.Messages = a.words.lines
	if err := report.write(outcome); err != nil {
		a.words.quiet = false
		a.words.fail(err)
		return statusError(statusRefused)
	}
	return ended(outcome.Status)
}

// runReported runs the command and fills in the report.
func (a *app) runReported(ctx context.Context, r *runFlags, out *runReport) error {
	mode, err := ttyMode(r.tty)
	if err != nil {
		return err
	}
	if r.dieWithParent {
		var stop func()
		if ctx, stop, err = withParent(ctx); err != nil {
			return err
		}
		defer stop()
	}
	session, l, ask, err := a.openAsking(ctx, r)
	if err != nil {
		if _, elsewhere := errors.AsType[*inspectElsewhere](err); !elsewhere && !errors.Is(err, errNotApart) {
			recordRefusal(out.Command, err)
		}
		return err
	}
	defer ask.close()
	if r.kept == nil {
		defer session.Close()
	}
	a.where = l
	ask.serve(a, session, out.Command, l.workspace)
	cmd := session.Command(ctx, out.Command[0], out.Command[1:]...)
	cmd.Dir, cmd.TTY, cmd.KillDelay = l.dir, mode, killDelay
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.in, a.out, a.err
	if r.prepare != nil {
		defer r.prepare(cmd)()
	}
	stop := func() {}
	// Not waited for: restoring the signals takes the runtime longer than the rest of
	// this process.
	defer func() { go stop() }()
	cmd.Prepared = func(p *plan.Plan, l *backend.Launch) {
		out.Workspace = p.Workspace
		// Where nothing can be shown copy-on-write, there is a gap.
		if p.Review != nil && slices.ContainsFunc(p.Review.Layers, func(l plan.ReviewLayer) bool { return l.Refused == "" }) {
			out.Review = p.Review.Name
		}
		a.sayStart(p, l)
		if r.kept == nil {
			stop = cmd.ForwardSignals()
		}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	out.Ran = true
	r.kept.started(cmd)
	ask.started(cmd)
	stopTelling := a.tellWhileRunning(cmd, r.forAgent)
	err = cmd.Wait()
	stopTelling()
	out.setResult(cmd.Result())
	return err
}

// openAsking opens the session for a command. With --ask, people decide what is denied.
func (a *app) openAsking(ctx context.Context, r *runFlags) (*cloche.Session, *loaded, *asking, error) {
	if r.kept != nil {
		return r.kept.session, r.kept.loaded, nil, nil
	}
	l, err := r.load()
	if r.apart && l != nil {
		// Also before an error is recorded.
		if err := l.checkApart(); err != nil {
			return nil, nil, nil, err
		}
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if a.inspect == nil && !l.Policy.Disabled && l.Policy.NeedsInspection() {
		return nil, nil, nil, &inspectElsewhere{l}
	}
	ask, err := a.asking(&r.askFlags, l)
	if err != nil {
		return nil, nil, nil, err
	}
	session, err := l.open(ctx, l.withAudit(), cloche.WithDeferredPlan(), cloche.WithFiles(r.files), cloche.WithInspection(a.inspect), ask.option())
	if err == nil {
		if err = ask.check(session); err == nil {
			return session, l, ask, nil
		}
		session.Close()
	}
	ask.close()
	return nil, nil, nil, err
}

// hintShell adds how to run a shell script to the error about a single argument that
// names no program and contains characters of a shell.
func hintShell(argv []string, err error) error {
	missing, ok := errors.AsType[*cloche.CommandError](err)
	if !ok || !missing.NotFound || len(argv) != 1 || !strings.ContainsAny(argv[0], " \t\n&|;<>$`()*?!=") {
		return err
	}
	return fmt.Errorf("%w; to have a shell run it: cloche run -- %s", err, commandLine([]string{"sh", "-c", argv[0]}))
}

// recordRefusal records a command that did not run because its policy could not be
// used. An error of the log is dropped: it would hide the one that matters.
func recordRefusal(argv []string, err error) {
	if dirs, dirsErr := machine.OwnDirs(); dirsErr == nil {
		_ = record(dirs, audit.Event{Kind: audit.Refused, Argv: argv, Error: err.Error(), Refusal: cloche.RefusalOf(err).Kind})
	}
}

func ttyMode(text string) (cloche.TTY, error) {
	switch text {
	case "", "auto":
		return cloche.TTYAuto, nil
	case "always":
		return cloche.TTYAlways, nil
	case "never":
		return cloche.TTYNever, nil
	}
	return cloche.TTYNever, fmt.Errorf("--tty %s: unknown; write auto, always or never", text)
}

// sayStart says what is unusual about the sandbox, before the command starts.
func (a *app) sayStart(p *plan.Plan, launch *backend.Launch) {
	a.limits, a.ownTerminal, a.launch = p.Limits, p.Command.Terminal, launch
	a.words.raw = p.Command.Terminal
	defer func() { a.words.raw = false }()
	a.sayNotices(p.Notices)
	if !launch.Confined {
		return // the notice about it is printed already
	}
	for _, g := range launch.Gaps {
		a.words.warn(g.String())
	}
}

// sayNotices prints the notices that are not expected.
func (a *app) sayNotices(list []plan.Notice) {
	for _, n := range list {
		if worthSaying(n) {
			a.words.warn(noticeLine(n))
		}
	}
}

// worthSaying reports whether a notice is printed. Expected ones are not: optional
// entries that do not exist, and entries of presets that this machine does not need.
func worthSaying(n plan.Notice) bool {
	switch n.Kind {
	case plan.NoticeUnconfined, plan.NoticeWarning, plan.NoticePublished:
		return true
	case plan.NoticeIgnored, plan.NoticeDropped:
		return n.Origin.Layer >= policy.LayerUser
	case plan.NoticeSkipped, plan.NoticeInfo, plan.NoticeNetwork, plan.NoticeGranted, plan.NoticeGrantDenied:
	}
	return false
}

// sayEnd prints why the command did not run, or why cloche ended it. An exit code or
// a signal of its own shows in the exit status only.
func (a *app) sayEnd(err error) {
	if err == nil {
		return
	}
	e, ran := errors.AsType[*cloche.ExitError](err)
	if !ran {
		a.words.fail(err)
		return
	}
	switch {
	case e.Signal == fileSizeSignal:
		a.words.fail(errors.New("exceeded its limit of " + plan.LimitFileSize + a.limitOf(e)))
	case e.TimedOut || e.Exceeded != "" || e.Canceled:
		a.words.fail(errors.New(e.Error() + a.limitOf(e)))
	case e.ExitCode == fileSizeStatus && a.limitOf(e) != "":
		a.words.fail(errors.New("a process exceeded its limit of " + plan.LimitFileSize + a.limitOf(e)))
	}
}

// fileSizeSignal is the name of SIGXFSZ, by which the kernel ends a process that
// writes beyond its limit of the size of a file.
const fileSizeSignal = "file size limit exceeded"

// fileSizeStatus is that of a shell one of whose commands was ended by SIGXFSZ, which is
// signal 25 wherever cloche confines commands.
const fileSizeStatus = 128 + 25

// limitOf says which limit a command was ended for, where it comes from and how to
// raise it; it is empty if it was none.
func (a *app) limitOf(e *cloche.ExitError) string {
	name := e.Exceeded
	switch {
	case e.TimedOut:
		name = plan.LimitTime
	case name == "" && (e.Signal == fileSizeSignal || e.ExitCode == fileSizeStatus):
		name = plan.LimitFileSize
	}
	i := slices.IndexFunc(a.limits, func(l plan.Limit) bool { return l.Name == name })
	flag := slices.IndexFunc(policyFlags[:], func(f flagSpec) bool { return f.field == "limits."+name })
	if i < 0 || flag < 0 {
		return ""
	}
	l := &a.limits[i]
	return fmt.Sprintf(": limits.%s %s (%s); raise it with --%s", name, policy.FormatLimit(name, l.Value), l.Origin, policyFlags[flag].name)
}

// needCommand refuses to run nothing.
func needCommand(c *cobra.Command, args []string) error {
	problem := "no command"
	if len(args) > 0 {
		if args[0] != "" {
			return nil
		}
		problem = "the name of the command is empty"
	}
	return fmt.Errorf("%s; write %[2]s -- CMD, or see %[2]s --help", problem, c.CommandPath())
}

// The exit statuses of cloche's own. Everything else is the command's.
const (
	statusDenied   = 1   // of check, policy test, doctor and log --verify: the answer is no
	statusTimedOut = 124 // the command timed out
	statusRefused  = 125 // cloche could not or would not run the command, or ended it for a limit
	statusNotExec  = 126 // the command was found and cannot be executed
	statusNotFound = 127 // the command was not found
)

// A statusError ends cloche with a status. What there is to say was said.
type statusError int

func (e statusError) Error() string { return "" }

// ended is the error that ends cloche with a status, nil for 0.
func ended(status int) error {
	if status == 0 {
		return nil
	}
	return statusError(status)
}

// statusOf is the exit status for the error of a run. A limit other than time ends a
// command like a refusal: its own status would say nothing about why.
func statusOf(err error) int {
	if err == nil {
		return 0
	}
	if s, ok := errors.AsType[statusError](err); ok {
		return int(s)
	}
	e, ran := errors.AsType[*cloche.ExitError](err)
	switch {
	case !ran:
		return statusOfErrors(flatten(err))
	case e.TimedOut:
		return statusTimedOut
	case e.Exceeded != "", e.Canceled, e.Signal == fileSizeSignal:
		return statusRefused
	}
	return e.ExitCode
}

// statusOfErrors tells a command that is not there from everything else that
// kept it from running. A second error of another kind is the graver one.
func statusOfErrors(errs []error) int {
	status := 0
	for _, err := range errs {
		s := statusRefused
		if e, ok := errors.AsType[*cloche.CommandError](err); ok {
			s = statusNotExec
			if e.NotFound {
				s = statusNotFound
			}
		} else if e, ok := errors.AsType[*cloche.ExecError](err); ok {
			s = e.ExitCode()
		}
		if status != 0 && status != s {
			return statusRefused
		}
		status = s
	}
	return status
}

// sayResult prints the notices about the network from while the command ran, and the
// denials: in a few lines, or as the text for an agent.
func (a *app) sayResult(r *cloche.Result, forAgent bool) {
	for _, n := range r.Notices {
		if n.Kind == plan.NoticeNetwork {
			a.words.warn(noticeLine(n))
		}
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
	return err == nil && slices.ContainsFunc(r.Denied, func(d plan.Denial) bool {
		rel, err := filepath.Rel(root, d.Path)
		outside := err == nil && !filepath.IsLocal(rel)
		return outside && d.NotWritable()
	})
}

const (
	// tellAfter is how long a command runs on after a denial before it is printed.
	tellAfter = 2 * time.Second
	tellEvery = time.Second
)

// tellWhileRunning prints the first denial of each kind while the command runs, for a
// person at a terminal or an agent. Otherwise the user of a command that retries forever
// would learn nothing. A line that cannot be printed now, because the command draws on
// the screen, is tried again later.
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
