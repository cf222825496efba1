package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/console"
	"github.com/cloche-dev/cloche/internal/desksocket"
	"github.com/cloche-dev/cloche/internal/desktop"
	"github.com/cloche-dev/cloche/internal/hook"
	"github.com/cloche-dev/cloche/policy"
)

// askFlags are the flags of commands that can wait for a decision.
type askFlags struct {
	ask     bool
	timeout time.Duration
	hook    string
}

func (f *askFlags) add(flags *pflag.FlagSet) {
	boolFlag(flags, &f.ask, "ask", groupRun, "let denied operations wait until you decide, here or with cloche approve; implies --net user")
	timeFlag(flags, &f.timeout, "ask-timeout", groupRun, "with --ask: how long an operation waits for a decision (default 5m)")
	textFlag(flags, &f.hook, "ask-hook", "PROGRAM", groupRun, "with --ask: a program that decides; it reads the request as JSON")
}

// An asking is how people are asked during one run. A nil asking asks nobody.
type asking struct {
	options grant.Options
	hook    *hook.Hook
	prompt  *prompter
	desktop *desktop.Notifier // where nobody is asked on a terminal
	socket  *desksocket.Server
}

// asking prepares it; nil without --ask.
func (a *app) asking(f *askFlags, l *loaded) (*asking, error) {
	if !f.ask {
		if f.hook != "" || f.timeout != 0 {
			return nil, errors.New("--ask-hook and --ask-timeout need --ask; add it")
		}
		return nil, nil
	}
	if l.Policy.Network.Origin.Layer < policy.LayerUser { // no person has chosen the network
		seeHosts(&l.Policy, "--ask")
	}
	s := &asking{desktop: desktop.New(), options: grant.Options{Store: grant.OpenStore(l.dirs.Data), Timeout: cmp.Or(f.timeout, l.Policy.Ask.Timeout)}}
	program, from := f.hook, "--ask-hook"
	if program == "" {
		program, from = fromHome(l.Policy.Ask.Hook), "ask.hook ("+l.Policy.Ask.Origin.String()+")"
	}
	if program != "" {
		h, err := hook.New(program, l.workspace)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		h.Failed = func(err error) { a.words.warn(err.Error()) }
		h.Env = hookEnvironment()
		s.hook = h
		s.options.Approvers = append(s.options.Approvers, h)
	}
	if a.json {
		s.desktop.Patience = hookPatience
		s.options.Approvers = append(s.options.Approvers, s.desktop)
	} else {
		s.prompt = newPrompter(a, s.desktop)
		if program != "" {
			s.prompt.patience = hookPatience
		}
		s.options.Approvers = append(s.options.Approvers, s.prompt)
	}
	return s, nil
}

// seeHosts gives a command without a network one on which its connections are seen, by
// the names that it asks for. Nothing more can be reached by it until a rule or a person
// allows it.
func seeHosts(p *policy.Policy, source string) {
	if n := &p.Network; n.Mode == policy.NetworkNone || n.Mode == policy.NetworkLoopback {
		n.Mode, n.Origin = policy.NetworkUser, policy.Origin{Layer: policy.LayerCommand, Source: source}
	}
}

// fromHome is a path of a policy, with ~/ written out.
func fromHome(p string) string {
	rest, ok := strings.CutPrefix(p, "~/")
	if home, err := os.UserHomeDir(); ok && err == nil {
		return filepath.Join(home, rest)
	}
	return p
}

// hookPatience is how long a hook has before a person is asked.
const hookPatience = 2 * time.Second

// hookEnvironment is what a hook gets of the environment: what a program needs to
// find its files and to show a window, and nothing that makes it run another.
func hookEnvironment() []string {
	env := []string{}
	for _, name := range []string{"HOME", "USER", "LANG", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return append(env, "PATH=/usr/local/bin:/usr/bin:/bin")
}

// option is the session's option.
func (s *asking) option() cloche.Option {
	if s == nil {
		return cloche.WithNotices() // none
	}
	return cloche.WithAsk(s.options)
}

// check refuses a hook that the command could put another program in the place of.
func (s *asking) check(session *cloche.Session) error {
	if s == nil || s.hook == nil || !session.IsWritable(s.hook.Path) {
		return nil
	}
	return fmt.Errorf("the command may write %s, which decides about it and runs outside of the sandbox; keep the hook elsewhere, or allow less", s.hook.Path)
}

// serve lets cloche approve find the desk. Where that cannot be, the terminal
// and the hook are left.
func (s *asking) serve(a *app, session *cloche.Session, argv []string, workspace string) {
	if s == nil {
		return
	}
	var err error
	info := desksocket.Info{Pid: os.Getpid(), Command: argv, Workspace: workspace, Started: time.Now().UTC()}
	if s.socket, err = desksocket.Serve(session.Desk(), info); err != nil {
		a.words.warn("cloche approve cannot decide about this command: " + err.Error())
	}
}

// started says that the command runs, and has the terminal.
func (s *asking) started(c *cloche.Cmd) {
	if s != nil && s.prompt != nil {
		s.prompt.cmd.Store(c)
	}
}

func (s *asking) close() {
	if s == nil {
		return
	}
	if s.prompt != nil {
		s.prompt.close()
	}
	s.desktop.Close()
	if s.socket != nil {
		s.socket.Close()
	}
}

// A prompter asks on the caller's terminal. While that is somebody else's, or the
// command has it for itself, it says once how to decide elsewhere.
type prompter struct {
	a *app
	// desktop says it too, then.
	desktop *desktop.Notifier

	cmd  atomic.Pointer[cloche.Cmd]
	wake chan struct{}
	done chan struct{}
	stop context.CancelFunc
	ctx  context.Context
	// patience is how long somebody else has to decide first, and what the command has
	// printed to appear.
	patience time.Duration

	mu    sync.Mutex
	queue []*question
}

// A question is a request that is asked about.
type question struct {
	desk    *grant.Desk
	request grant.Request
	ctx     context.Context // ends when there is nothing to decide any more
	cancel  context.CancelFunc
	told    bool
	// elsewhere: the terminal sends what no person types.
	elsewhere bool
}

func newPrompter(a *app, d *desktop.Notifier) *prompter {
	p := &prompter{a: a, desktop: d, patience: retryTerminal, wake: make(chan struct{}, 1), done: make(chan struct{})}
	p.ctx, p.stop = context.WithCancel(context.Background())
	go p.loop()
	return p
}

// Asked puts a request at the end of the queue.
func (p *prompter) Asked(d *grant.Desk, r grant.Request) {
	q := &question{desk: d, request: r}
	q.ctx, q.cancel = context.WithCancel(p.ctx)
	p.mu.Lock()
	p.queue = append(p.queue, q)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Withdrawn takes it away, also while it is being asked.
func (p *prompter) Withdrawn(r grant.Request) {
	p.desktop.Withdrawn(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.queue {
		if q.request.ID == r.ID {
			q.cancel()
		}
	}
}

func (p *prompter) close() {
	p.stop()
	<-p.done
}

// retryTerminal is how often the prompter tries to get the terminal.
const retryTerminal = 100 * time.Millisecond

func (p *prompter) loop() {
	defer close(p.done)
	tick := time.NewTicker(retryTerminal)
	defer tick.Stop()
	for {
		if q := p.first(); q != nil {
			p.try(q)
			select {
			case <-tick.C:
			case <-p.ctx.Done():
				return
			}
			continue
		}
		select {
		case <-p.wake:
		case <-p.ctx.Done():
			return
		}
	}
}

// first is the oldest question that still waits.
func (p *prompter) first() *question {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 && p.queue[0].ctx.Err() != nil {
		p.queue = p.queue[1:]
	}
	if len(p.queue) == 0 {
		return nil
	}
	return p.queue[0]
}

// try asks, if the terminal can be taken.
func (p *prompter) try(q *question) {
	c := p.cmd.Load()
	if c == nil || time.Since(q.request.Made) < p.patience {
		return // it has not started, or has just
	}
	if q.elsewhere {
		p.announce(q)
		return
	}
	if t, ok := c.HoldTerminal(); ok {
		defer t.Release()
		p.ask(t, q)
		return
	}
	p.announce(q)
}

// announce says how to decide elsewhere.
func (p *prompter) announce(q *question) {
	if q.told {
		return
	}
	q.told = true
	p.desktop.Asked(q.desk, q.request)
	p.a.words.warn(fmt.Sprintf("%s wants to %s and waits; decide with: cloche approve (request %s)", asker(q.request), wants(q.request), q.request.ID))
}

// ask asks on the terminal until there is an answer. A terminal that ends, and a
// request that is decided elsewhere, leave it as it is.
func (p *prompter) ask(t console.Terminal, q *question) {
	prompt, err := console.Start(q.ctx, t)
	if err != nil {
		q.elsewhere = errors.Is(err, console.ErrNoisy)
		return
	}
	defer prompt.Close()
	writeQuestion(prompt, q.request)
	var less grant.Decision
	list := append(choicesFor(q.request, false), choice{word: "less", help: lessHelp(q.request)})
	for {
		a, err := prompt.Answer(q.ctx, func(code string) string { return "cloche: " + choiceLine(list, code, lessText(less)) })
		switch {
		case errors.Is(err, console.ErrInterrupt):
			a.Text = "no"
		case errors.Is(err, console.ErrTooMany):
			q.elsewhere = true
			fmt.Fprint(prompt, "cloche: it is not asked about here any more\r\n")
			return
		case err != nil:
			fmt.Fprint(prompt, "\r\ncloche: it does not wait any more\r\n")
			return
		}
		if a.Text == "less" {
			less = p.narrow(prompt, q, less)
			continue
		}
		d, known := chosen(list, a)
		if !known {
			fmt.Fprint(prompt, choiceHelp(list))
			continue
		}
		if d.Allow {
			d.Path, d.Access, d.Host = less.Path, less.Access, less.Host
		}
		if p.decide(prompt, q, d) {
			return
		}
	}
}

// lessText says what is left of a request.
func lessText(less grant.Decision) string {
	text := ""
	if less.Access != "" {
		text += " only " + string(less.Access)
	}
	if what := less.Path + less.Host; what != "" {
		text += " " + cutMiddle(printable(what), maxShown)
	}
	return text
}

// decide takes the decision; false asks again.
func (p *prompter) decide(t io.Writer, q *question, d grant.Decision) bool {
	d.By = whoDecides()
	g, err := q.desk.Decide(q.request.ID, d)
	switch {
	case errors.Is(err, grant.ErrNotPending):
		fmt.Fprint(t, "cloche: it does not wait any more\r\n")
	case err != nil:
		fmt.Fprintf(t, "cloche: %s\r\n", printable(err.Error()))
		return false
	default:
		verb, what := decided(&q.request, d, g)
		fmt.Fprintf(t, "cloche: %s %s\r\n", verb, printable(what))
	}
	return true
}
