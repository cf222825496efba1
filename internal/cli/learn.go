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

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/config"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/learn"
	"github.com/cloche-dev/cloche/internal/redact"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// learnRounds is how often a command is run at most, unless the caller says
// otherwise: each run shows what the last one was stopped before.
const learnRounds = 20

type learnFlags struct {
	sessionFlags
	output  string
	force   bool
	once    bool
	yes     bool
	rounds  int
	include []string
}

func (a *app) learnCommand() *cobra.Command {
	f := &learnFlags{rounds: learnRounds}
	c := &cobra.Command{
		Use:   "learn [flags] [--] CMD [ARG…]",
		Short: "Run a command and write the policy that it needs",
		Long: `Run a command in a sandbox, see what it is denied, and write the smallest policy
that lets it succeed.

The first run has the policy of "cloche run" with the same flags. Each further run
adds what the command needed, until nothing more is denied; with --once there is
only one run. Caches of well-known tools, and reads that no rule hides, are added
without a question. Other folders and hosts are added if you say yes, on the
terminal or with --yes; without an answer they are in the file and not tried.
Secrets, files that programs outside execute, the system, the local network and
services of this machine are left out unless you name them with --include.

The policy is written to .cloche.yaml in the workspace. Read it, and trust it with
"cloche policy trust". The exit status is that of the last run.`,
		Example: `  cloche learn -- go build ./...
  cloche learn --preset strict --output - -- python3 tool.py
  cloche learn --yes --include registry.npmjs.org -- npm ci
  cloche learn --once --output deploy.yaml -- ./deploy --dry-run`,
		Args: needCommand,
		RunE: func(c *cobra.Command, args []string) error { return a.learn(c.Context(), f, args) },
	}
	f.add(c)
	flags := c.Flags()
	flags.SetInterspersed(false)
	numberFlag(flags, &f.rounds, "rounds", "", "N", groupRun, "run the command N times at most (default 20)")
	boolFlag(flags, &f.once, "once", groupRun, "run the command once, because it cannot be repeated")
	boolFlag(flags, &f.yes, "yes", groupRun, "accept everything that is not sensitive, without asking")
	stringsFlag(flags, &f.include, "include", "PATH|HOST", groupRun, "accept PATH and everything below it, or HOST, even if it is sensitive; may be repeated")
	textFlag(flags, &f.output, "output", "FILE", groupOutput, "write the policy to FILE; - is standard output, and the command's output then goes to standard error")
	boolFlag(flags, &f.force, "force", groupOutput, "replace FILE if it exists")
	return c
}

// A lesson is one use of learn.
type lesson struct {
	*app
	flags *learnFlags
	argv  []string
	// start is what the flags say, with absolute paths.
	start   []policy.Setting
	output  *learnOutput
	file    learn.File
	include []string        // absolute paths and hosts
	ctx     context.Context // of the whole lesson
	// asks: there is somebody at the terminal.
	asks bool
	// stdin is where a file that is standard input starts.
	stdin int64
}

func (a *app) learn(ctx context.Context, f *learnFlags, argv []string) error {
	if f.rounds < 1 {
		return fmt.Errorf("--rounds %d: not a number of runs; write 1 or more", f.rounds)
	}
	if f.once {
		f.rounds = 1
	}
	l, err := a.newLesson(ctx, f, argv)
	if err != nil {
		return err
	}
	defer l.output.close()
	ran, err := l.repeat(ctx)
	if !ran {
		return err
	}
	status := statusOf(err)
	a.sayEnd(err)
	if err := l.write(err); err != nil {
		a.words.fail(err)
		return statusError(statusRefused)
	}
	return ended(status)
}

func (a *app) newLesson(ctx context.Context, f *learnFlags, argv []string) (*lesson, error) {
	loaded, err := f.load() // for the places, and so that what is wrong is said before anything runs
	if err != nil {
		return nil, err
	}
	if loaded.Policy.Disabled {
		return nil, errors.New("learn: the sandbox is switched off (" + loaded.Policy.DisabledOrigin.String() + "), and nothing is refused; switch it on with cloche enable")
	}
	workspace := loaded.workspace
	l := &lesson{app: a, ctx: ctx, flags: f, argv: argv}
	if l.output, err = openLearnOutput(f, workspace); err != nil {
		return nil, err
	}
	l.asks = !f.yes && term.IsTerminal(int(a.in.Fd())) && term.IsTerminal(int(os.Stderr.Fd()))
	l.stdin = offset(a.in)
	if l.start, err = f.startSettings(); err != nil {
		return nil, err
	}
	if l.include, err = included(f.include); err != nil {
		return nil, err
	}
	home, _ := os.UserHomeDir() // without one there is no "~"
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	d := loaded.dirs
	l.file = learn.File{
		Machine: learn.Machine{Home: home, Workspace: workspace, Locked: []string{d.Config, d.Data, d.State, d.Cache}, Stat: statKind},
		Base:    l.output.base, Command: "cloche learn -- " + commandLine(redact.Argv(argv)), Start: l.start,
	}
	return l, l.knowRules(ctx, loaded)
}

// knowRules finds out which paths the rules of the policy keep, in a plan that has only
// the rules that hide and protect, and in which all else can be written: nothing runs under
// it. In the plans of the runs a rule that hides what is hidden anyway, or protects what
// cannot be written, is not seen. Rules that open something are left out: what they need (a
// link that no command can replace, a place for a bind) is not there where all can be written.
// So the plan has every file under the host's own name.
func (l *lesson) knowRules(ctx context.Context, loaded *loaded) error {
	open := *loaded
	open.Policy = loaded.Policy.With(func(p *policy.Policy) {
		p.Reads, p.Home.Hidden, p.Tmp = policy.ReadsHost, false, policy.TmpShared
		p.Remap, p.Binds, p.Persist, p.Sockets = "", nil, nil, nil
		write := func(path string, l policy.Layer) policy.PathRule {
			return policy.PathRule{Path: path, Access: policy.Write, Origin: policy.Origin{Layer: l, Source: "cloche learn"}}
		}
		keeps := func(r policy.PathRule) bool { return r.Access == policy.Hidden || r.Protect }
		p.Paths = slices.DeleteFunc(slices.Clone(p.Paths), func(r policy.PathRule) bool { return !keeps(r) })
		p.Paths = append(p.Paths, write("/", policy.LayerPreset), write("urn:cloche:workspace", policy.LayerGrant)) // no plan is without its working folder
	})
	session, err := open.open(ctx)
	if err != nil {
		return err
	}
	p, err := session.Explain()
	if err != nil {
		return errors.Join(err, session.Close())
	}
	l.file.Judge = judge.NewFiles(p).Path
	return session.Close()
}

func statKind(path string) (exists, folder bool) {
	info, err := os.Stat(path)
	return err == nil, err == nil && info.IsDir()
}

// offset is where a regular file stands; -1 for anything else.
func offset(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return -1
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return -1
	}
	return at
}

// repeat runs the command until nothing new is refused. ran is false if it could
// not be run at all.
func (l *lesson) repeat(ctx context.Context) (ran bool, err error) {
	for round := 1; ; round++ {
		l.words.say(green, fmt.Sprintf("learn: run %d of at most %d", round, l.flags.rounds))
		result, runErr := l.once(ctx, round)
		if result == nil {
			return round > 1, runErr
		}
		more, err := l.note(result, round < l.flags.rounds)
		if err != nil {
			return true, err
		}
		interrupted := result.Signal == os.Interrupt.String() // by the person at the terminal
		if !more || ctx.Err() != nil || result.Canceled || interrupted {
			return true, runErr
		}
	}
}

// once runs the command under the very text that would be written now.
func (l *lesson) once(ctx context.Context, round int) (*cloche.Result, error) {
	doc, err := l.document()
	if err != nil {
		return nil, err
	}
	loaded, err := l.flags.loadWith(func(o *config.Options) { o.Command, o.Without = doc, l.output.path })
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(l.start, func(s policy.Setting) bool { return s.Field == "network.mode" }) {
		seeHosts(&loaded.Policy, "cloche learn")
	}
	// The desk has every file judged that is opened, also for reading, so that what is
	// hidden is recorded. Nobody is asked: the answer is no at once, and the run after this
	// one has what was agreed to. The desk is not the session's, which would record
	// decisions that no person made; the denials are still recorded.
	desk := grant.NewDesk(grant.Options{Approvers: []grant.Approver{refuser{}}})
	defer desk.Close()
	session, err := loaded.open(ctx, loaded.withAudit(), cloche.WithDesk(desk))
	if err != nil {
		return nil, err
	}
	defer session.Close()
	if err := canRecord(session); err != nil {
		return nil, err
	}
	return l.runIn(ctx, session, loaded, round)
}

// A refuser says no.
type refuser struct{}

func (refuser) Asked(d *grant.Desk, r grant.Request) {
	// The only error is that somebody else was faster.
	_, _ = d.Decide(r.ID, grant.Decision{Note: "cloche learn takes note of it", By: "cloche learn"})
}

func (refuser) Withdrawn(grant.Request) {}

// document is the policy so far, as the file would be read.
func (l *lesson) document() (*policy.Document, error) {
	file := l.file
	file.Proposed = nil // what nobody agreed to is not tried
	text, err := file.Text()
	if err != nil {
		return nil, err
	}
	doc, err := policy.ParseIn("what cloche learn has found", l.output.base, []byte(text))
	if err != nil {
		return nil, fmt.Errorf("learn: the policy so far cannot be read back: %w", err)
	}
	err = doc.Set("denials", policy.RecordThorough.String(), "cloche learn") // every read is recorded then
	for _, s := range l.start {
		// The values of variables are not in the text.
		if value, isText := s.Value.(string); isText && strings.HasPrefix(s.Field, "env.set.") {
			err = errors.Join(err, doc.Set(s.Field, value, "cloche learn"))
		}
	}
	return doc, err
}

// canRecord refuses backends that do not tell what they refuse.
func canRecord(s *cloche.Session) error {
	name, _, err := s.Backend()
	if err != nil {
		return err
	}
	if name != "native" && name != "bwrap" {
		return fmt.Errorf("learn: the backend %s keeps no record of what it refuses; learn needs native or bwrap (see cloche doctor)", name)
	}
	return nil
}

func (l *lesson) runIn(ctx context.Context, session *cloche.Session, loaded *loaded, round int) (*cloche.Result, error) {
	cmd := session.Command(ctx, l.argv[0], l.argv[1:]...)
	cmd.Dir, cmd.TTY, cmd.KillDelay = loaded.dir, cloche.TTYAuto, killDelay
	cmd.Stdin, cmd.Stdout, cmd.Stderr = l.input(round), l.output.commandOutput(l.app), l.err
	cmd.Prepared = func(p *plan.Plan, launch *backend.Launch) {
		l.file.Plan = p
		if round == 1 {
			l.sayStart(p, launch)
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := cmd.ForwardSignals()
	defer stop()
	err := cmd.Wait()
	return cmd.Result(), err
}

// input is what a run reads: a terminal, or a file from its start on. What comes
// through a pipe the first run has read.
func (l *lesson) input(round int) io.Reader {
	if round == 1 || term.IsTerminal(int(l.in.Fd())) {
		return l.in
	}
	if l.stdin < 0 {
		return strings.NewReader("")
	}
	if _, err := l.in.Seek(l.stdin, io.SeekStart); err != nil {
		return strings.NewReader("")
	}
	return l.in
}
