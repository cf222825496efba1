package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/policy"
)

// serverName is the program that serves MCP. See command cloche-mcp.
const serverName = "cloche-mcp"

// MCP is what a server of the Model Context Protocol is started with.
type MCP struct {
	// Policy is what commands and files are held to, before anything is granted.
	Policy policy.Policy
	// Options are those of every session. They name the workspace.
	Options []cloche.Option
	// Workspace is the folder that commands work on, Dir the one that they start in.
	// Both are real and absolute.
	Workspace, Dir string
	// DataDir is where grants that outlive the client are stored. Kept returns those of
	// the workspace that are in force now.
	DataDir string
	Kept    func() ([]grant.Grant, error)
	// Started is when the policy was written for this server. What it takes away,
	// older grants do not give back.
	Started time.Time
	// Decided records the answer to a request in the audit log.
	Decided func(grant.Request, *grant.Grant, error)
	// GrantTimeout is how long a request for access waits; 0 is the default.
	GrantTimeout time.Duration
	// Ask makes denied operations of commands wait for a decision. AskClient: the client
	// may show requests to its user, and what it answers is the user's decision.
	Ask, AskClient bool
	Version        string
	// Messages is where a person reads about requests.
	Messages io.Writer
}

// MCPMain is the command cloche-mcp: `cloche mcp` with the server in the same
// program. It returns the exit status.
func MCPMain(args []string, serve func(context.Context, MCP) error, inspect cloche.Inspection) int {
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, words: newWords(os.Stderr), serve: serve, inspect: inspect}
	return a.main(append([]string{"mcp"}, args...))
}

func (a *app) mcpCommand() *cobra.Command {
	var s sessionFlags
	var timeout time.Duration
	var ask, askClient bool
	c := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "Serve an agent that speaks the Model Context Protocol",
		Long: `Serve an agent that speaks the Model Context Protocol on standard input and
output.

The agent gets tools to run commands and to read, write, edit and list files, all
under one policy, and a tool to ask for more access. A request waits until you
decide with cloche approve; no answer means no. With --ask-client you can decide
in the agent's own window, if its program can ask.

The server is the program cloche-mcp. cloche looks for it beside itself and then
in PATH, never in the workspace. When the client ends, so does everything it
started.`,
		Example: `  cloche mcp
  cloche mcp --workspace ~/project --allow proxy.golang.org:443
  cloche mcp --preset strict --grant-timeout 1m
  cloche mcp --ask --ask-client`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if a.serve == nil {
				return a.startServer(c.Context(), &s)
			}
			return a.serveMCP(c.Context(), &s, MCP{GrantTimeout: timeout, Ask: ask, AskClient: askClient})
		},
	}
	s.add(c)
	boolFlag(c.Flags(), &ask, "ask", groupRun, "let denied operations of commands wait until you decide with cloche approve")
	boolFlag(c.Flags(), &askClient, "ask-client", groupRun, "let the agent's program show you requests in its own window, and trust its answer")
	timeFlag(c.Flags(), &timeout, "grant-timeout", groupRun, "how long a request for access waits for a decision (default 5m)")
	return c
}

// serveMCP loads the policy and serves until the client is gone or a signal ends
// the server.
func (a *app) serveMCP(ctx context.Context, s *sessionFlags, m MCP) error {
	l, err := s.load()
	if err != nil {
		return err
	}
	m.Policy, m.DataDir, m.Version, m.Messages, m.Decided = l.base, l.dirs.Data, buildVersion(), a.err, a.recordDecision(l.dirs)
	m.Workspace = l.workspace
	if m.Dir, err = filepath.EvalSymlinks(l.dir); err != nil {
		return fmt.Errorf("working folder %s: %w", l.dir, err)
	}
	m.Started = time.Now().Truncate(time.Second) // as the times of grants are
	m.Kept = l.kept(m.Workspace, m.Started)
	m.Options = append(l.options(), l.withAudit(), cloche.WithInspection(a.inspect))
	a.sayNotices(slices.Concat(l.notices(), l.homeNotice()))
	// That a client is gone shows in a write that fails, and not in a
	// signal that would end the server before its log is complete. It is caught
	// and not ignored: commands would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return a.serve(ctx, m)
}

// kept returns the grants of the workspace at the moment that it is called, without
// those that the command line leaves no network for.
func (l *loaded) kept(workspace string, started time.Time) func() ([]grant.Grant, error) {
	store := grant.OpenStore(l.dirs.Data)
	return func() ([]grant.Grant, error) {
		list, err := store.For(workspace)
		return slices.DeleteFunc(list, func(g grant.Grant) bool { return g.Made.Before(started) && closed(l.base, &g) != "" }), err
	}
}

// recordDecision records each answer to a request. It prints an error if the log cannot be
// written, for which the next command will not run.
func (a *app) recordDecision(dirs host.Dirs) func(grant.Request, *grant.Grant, error) {
	log := audit.NewDir(auditDir(dirs))
	return func(r grant.Request, g *grant.Grant, err error) {
		e := runlog.Decision(r, g, err)
		e.Version = buildVersion()
		if err := log.Record(e); err != nil {
			a.words.fail(fmt.Errorf("the audit log cannot be written: %w", err))
		}
	}
}

// startServer executes the server with the arguments of this command.
func (a *app) startServer(ctx context.Context, s *sessionFlags) error {
	session, l, err := s.open(ctx)
	if err != nil {
		return err
	}
	p, err := session.Explain()
	if err := errors.Join(err, session.Close()); err != nil {
		return err
	}
	writable := append(p.Writable(), l.workspace)
	path, err := findProgram(serverName, writable)
	if err != nil {
		return err
	}
	args := a.args[slices.Index(a.args, "mcp")+1:]
	return replaceProcess(path, append([]string{serverName}, args...))
}

// findProgram looks for another program of cloche beside this one and then in PATH. One that
// confined commands could have put there is left out.
func findProgram(name string, writable []string) (string, error) {
	var folders []string
	if self, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(self); err == nil {
			self = real
		}
		folders = append(folders, filepath.Dir(self))
	}
	folders = append(folders, filepath.SplitList(os.Getenv("PATH"))...)
	for i, w := range writable {
		if real, err := filepath.EvalSymlinks(w); err == nil {
			writable[i] = real
		}
	}
	var left error
	for _, dir := range folders {
		// A relative entry of PATH means another folder wherever one is.
		path := filepath.Join(dir, name)
		if !filepath.IsAbs(dir) || !isProgram(path) {
			continue
		}
		if left = machine.CheckProgram(path, writable); left == nil {
			return path, nil
		}
	}
	fix := "install it beside cloche: go install github.com/cloche-dev/cloche/cmd/" + name + "@" + serverVersion()
	if left != nil {
		return "", fmt.Errorf("%w; it is not started; %s", left, fix)
	}
	return "", errors.New("the program " + name + " is neither beside cloche nor in PATH; " + fix)
}

// serverVersion is the version of the server that goes with this program, as go install
// wants it.
func serverVersion() string {
	if v := buildVersion(); strings.HasPrefix(v, "v") && !strings.ContainsAny(v, " +(") {
		return v
	}
	return "latest"
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
