package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/internal/keeper"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/policy"
)

// keeperWords start the process that keeps a warm session for an agent: see package keeper. Only cloche starts it.
var keeperWords = []string{"agent", "keep"}

// keepersDir is the folder of the sockets of keepers.
func keepersDir(d host.Dirs) string { return filepath.Join(d.State, "keepers") }

// A keeperRef is the keeper that could serve this process, whether it runs or not.
type keeperRef struct {
	dir   string
	key   keeper.Key
	agent int
	// busy: it runs.
	busy bool
}

// keeperOf returns the keeper of an agent for this process, or nil if none can serve it.
func keeperOf(agent int) *keeperRef {
	if agent == 0 {
		return nil
	}
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if isTerminal(f) {
			return nil // the command may have to be given one of its own
		}
	}
	dirs, err := machine.OwnDirs()
	if err != nil {
		return nil
	}
	key, err := keeper.KeyOf(agent)
	if err != nil {
		return nil
	}
	return &keeperRef{dir: keepersDir(dirs), key: key, agent: agent}
}

// runKept has the keeper run the script. If it was not taken, this process is to run it.
func (a *app) runKept(k *keeperRef, s *shellCall, dir string) (status int, taken bool) {
	if k == nil {
		return 0, false
	}
	conn, err := keeper.Dial(k.dir, k.key)
	if err != nil {
		return 0, false
	}
	k.busy = true
	defer conn.Close()
	status, taken, err = conn.Run(&keeper.Call{Args: s.words(), Env: os.Environ(), Dir: dir, Files: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if taken && err != nil {
		a.words.fail(err)
		return statusRefused, true
	}
	return status, taken
}

// start starts the keeper for the next command, unless it runs. The next command does without if that fails.
func (k *keeperRef) start() {
	if k != nil && !k.busy {
		_ = keeper.Start(k.dir, k.key, k.agent, keeperWords...)
	}
}

// words are the call as texts, for readWords.
func (s *shellCall) words() []string {
	return append([]string{s.shell, strconv.FormatBool(s.login), strconv.FormatBool(s.claude), s.script}, s.rest...)
}

// readWords is the reverse of words.
func readWords(words []string) (s shellCall, ok bool) {
	if len(words) < 4 {
		return s, false
	}
	return shellCall{shell: words[0], login: words[1] == "true", claude: words[2] == "true", script: words[3], rest: words[4:]}, true
}

// couldBeKept reports whether the command that ran could have run in a warm session.
func (a *app) couldBeKept() bool {
	return a.launch != nil && a.launch.Confined && a.launch.Backend == keptBackend && !a.ownTerminal && keepable(&a.where.Policy)
}

// keptBackend is the backend that has warm sessions.
const keptBackend = "native"

// keepable reports whether commands with a policy may share a warm session. They may not if the session would have for longer what is a
// command's: a review, published ports, a proxy of the session bus.
func keepable(p *policy.Policy) bool {
	return !p.Cold && !p.Disabled && !p.Privileged && p.Review == "" && len(p.Network.Publish) == 0 && !p.Bus.Enabled && !p.NeedsInspection()
}

// errNotKept is why commands do not share a session.
var errNotKept = errors.New("the backend has no warm sessions")

// errNoSandbox is why the client is to run its command itself: the warm sandbox could not be made, and the command has not run. A command that
// keeps changing names which the policy is about must not stop others: a sandbox of their own is made faster.
var errNoSandbox = errors.New("the warm sandbox cannot be made")

// keep is the process that keeps the session.
func (a *app) keep(key, agent string) error {
	dirs, err := machine.OwnDirs()
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(agent)
	if err != nil {
		return err
	}
	k := &keep{mounts: keeper.WatchMounts()}
	defer k.retire()
	return keeper.Serve(keepersDir(dirs), keeper.Key(key), pid, k.serve)
}

// A keep has the warm session. Each command finds what a process of its own would: it loads the policy anew, and the
// session is only used if nothing has changed.
type keep struct {
	mounts *keeper.Mounts

	mu      sync.Mutex
	current *keptSession
}

// A keptSession is a warm session for what was loaded, on the machine as it was.
type keptSession struct {
	*cloche.Session
	owner  *keep
	loaded loaded
	// sinks are what the user's git settings execute, for which the session has rules.
	sinks gitguard.Found
	host  *host.Snapshot
	users int // guarded by the owner's mutex
}

// A keptCall is the call of a client.
type keptCall struct {
	client  *keeper.Client
	session *cloche.Session
	loaded  *loaded
}

// started passes signals on to the command.
func (c *keptCall) started(cmd *cloche.Cmd) {
	if c != nil {
		c.client.Deliver(func(s syscall.Signal) { _ = cmd.Signal(s) })
	}
}

// serve runs the script of a client. What is not as usual is for the client itself.
func (k *keep) serve(ctx context.Context, c *keeper.Client) (status int, taken bool) {
	s, ok := readWords(c.Args)
	if !ok {
		return 0, false
	}
	argv, err := s.argv()
	if err != nil {
		return 0, false
	}
	r := &runFlags{forAgent: true, apart: true}
	r.report.fd, r.chdir, r.caller = noFD, c.Dir, c.PID
	l, err := r.load()
	if err != nil || l.checkApart() != nil || !keepable(&l.Policy) {
		return 0, false
	}
	session, err := k.take(ctx, l)
	if err != nil {
		return 0, false
	}
	defer session.release()
	note := newNote(&s)
	if note != nil {
		argv, _ = s.argv()
	}
	r.kept = &keptCall{client: c, session: session.Session, loaded: l}
	r.prepare = func(cmd *cloche.Cmd) func() {
		cmd.Env = c.Env
		return note.attach(cmd)
	}
	a := &app{in: c.Files[0], out: c.Files[1], err: c.Files[2], words: newWords(&whileHere{ctx, c.Files[2]})}
	err = a.run(ctx, r, argv)
	return statusOf(err), !errors.Is(err, errNoSandbox)
}

// whileHere writes nothing once the client is gone: its standard error may have another use.
type whileHere struct {
	ctx context.Context
	to  *os.File
}

func (w *whileHere) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.to.Write(b)
}

// take returns the session for what was loaded. It has to be released.
func (k *keep) take(ctx context.Context, l *loaded) (*keptSession, error) {
	same := *l
	same.dir, same.base = "", policy.Policy{} // each command has its own folder, and the rest is in Policy
	now, err := machine.Collect(l.workspace)
	if err != nil {
		return nil, err
	}
	now.Networking.Hostname, _ = os.Hostname()
	sinks, err := gitguard.Sinks(l.workspace, os.Environ())
	if err != nil {
		return nil, err // the command has a notice about that
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil || !sameLoaded(k.current.loaded, same) || !reflect.DeepEqual(k.current.sinks, sinks) {
		lib, err := l.open(ctx, l.withAudit(), cloche.WithDeferredPlan(), cloche.WithWarm())
		if err != nil {
			return nil, err
		}
		if backend, _, err := lib.Backend(); err != nil || backend != keptBackend {
			_ = lib.Close() // nothing has run in it
			return nil, errNotKept
		}
		k.retireLocked()
		k.current = &keptSession{Session: lib, owner: k, loaded: same, sinks: sinks, host: now}
	}
	if s := k.current; k.mounts.Changed() || !sameHost(s.host, now) {
		s.Refresh()
		s.host = now
	}
	k.current.users++
	return k.current, nil
}

// sameLoaded reports whether two commands have the same policy, the same workspace and the same notices.
func sameLoaded(a, b loaded) bool {
	// Most of a policy are its rules, for which reflection would take as long as the rest of a command.
	rules := slices.Equal(a.Policy.Paths, b.Policy.Paths)
	a.Policy.Paths, b.Policy.Paths = nil, nil
	return rules && reflect.DeepEqual(a, b)
}

// sameHost reports whether the machine is as it was. A session notices itself if a file that a rule names or a variable has changed.
func sameHost(a, b *host.Snapshot) bool {
	one, other := *a, *b
	for _, s := range []*host.Snapshot{&one, &other} {
		s.Environ, s.EnvNames, s.FS = nil, nil, nil
	}
	return reflect.DeepEqual(&one, &other)
}

func (k *keep) retire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.retireLocked()
}

// retireLocked lets the session go. The mutex is held.
func (k *keep) retireLocked() {
	old := k.current
	k.current = nil
	if old != nil && old.users == 0 {
		_ = old.Close() // nothing runs in it
	}
}

// release ends the use of a session.
func (s *keptSession) release() {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	s.users--
	if s.users == 0 && s.owner.current != s {
		_ = s.Close()
	}
}

// A note is that of the folder with which a command of Claude Code ends: see claudeFolderFile. The rules of a shared sandbox cannot
// name a file of each command, so the shell writes the note to a pipe, and the keeper makes the file.
type note struct {
	file        string
	read, write *os.File
}

// maxNote is longer than any path.
const maxNote = 8 << 10

// newNote has the script write its note to descriptor 3, which nothing else in the script has. It returns nil if there is no note.
func newNote(s *shellCall) *note {
	script, file := cutClaudeNote(s.script)
	if !s.claude || file == "" {
		return nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil
	}
	s.script = "{ " + script + "\n} 3>&- && pwd -P >&3"
	return &note{file: file, read: read, write: write}
}

// attach gives the command the pipe. done makes the file, if the command came to its end.
func (n *note) attach(cmd *cloche.Cmd) (done func()) {
	if n == nil {
		return func() {}
	}
	cmd.ExtraFiles = []*os.File{n.write}
	return func() {
		n.write.Close()
		defer n.read.Close()
		_ = n.read.SetReadDeadline(time.Now().Add(killDelay)) // the command has ended, and with it every writer
		text := make([]byte, maxNote)
		size, err := n.read.Read(text)
		if text = text[:size]; err != nil || !bytes.HasPrefix(text, []byte("/")) {
			return
		}
		f, err := os.OpenFile(n.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return
		}
		_, _ = f.Write(text)
		_ = f.Close()
	}
}
