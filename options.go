package cloche

import (
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/inspection"
	"github.com/cloche-dev/cloche/plan"
)

// An Option sets something about a session that is not part of its policy.
type Option func(*options)

type options struct {
	workspace string
	// realWorkspace: no symbolic link may be on the way to it.
	realWorkspace bool
	document      string
	registry      *backend.Registry
	snapshot      func(workspace string) (*host.Snapshot, error)
	sink          audit.Sink
	policyFiles   []audit.PolicyFile
	ownPrograms   []string
	notices       []plan.Notice
	version       string
	files         map[string]string // text by path
	deferred      bool
	// environ returns the caller's current environment.
	environ func() []string
	warm    bool
	ask     *grant.Options
	desk    *grant.Desk // given by WithDesk; its owner closes it
	sharing builtin.Sharing
	inspect Inspection
}

// Inspection makes what looks inside TLS. Package https has it.
type Inspection = inspection.Open

// discard is the default sink. It drops every event.
type discard struct{}

func (discard) Record(audit.Event) error { return nil }

// WithWorkspace sets the folder that commands work on. The default is the one that the
// policy was made for with [policy.Workspace], and for other policies the
// working folder of the program.
func WithWorkspace(dir string) Option {
	return func(o *options) { o.workspace, o.realWorkspace = dir, false }
}

// WithRealWorkspace is WithWorkspace for a path without symbolic links. If one is on the way to
// it when a command starts, the command is refused: another command, which may write a folder on
// the way, has put it there.
func WithRealWorkspace(dir string) Option {
	return func(o *options) { o.workspace, o.realWorkspace = dir, true }
}

// WithFiles shows commands read-only files that the host does not have: texts by path. A file
// is left out if its path is not in one of the sandbox's own folders, such as /run. A backend
// without mounts shows none of them.
func WithFiles(texts map[string]string) Option { return func(o *options) { o.files = texts } }

// WithDocument sets the folder that "urn:cloche:document" stands for.
func WithDocument(dir string) Option { return func(o *options) { o.document = dir } }

// WithRegistry sets the backends to choose from. The default is what
// [DefaultRegistry] returns.
func WithRegistry(r *backend.Registry) Option { return func(o *options) { o.registry = r } }

// WithAudit records every run in the sink. The default records nothing.
func WithAudit(s audit.Sink) Option { return func(o *options) { o.sink = s } }

// WithOwnPrograms names programs of the caller, for example its own file, that are in a place
// where commands may write. No command can change them: otherwise the changed program would
// run outside of the sandbox at its next start.
func WithOwnPrograms(files ...string) Option {
	return func(o *options) { o.ownPrograms = append(o.ownPrograms, files...) }
}

// WithPolicyFiles names the files that the policy was read from. No command can write them,
// and the audit log names them.
func WithPolicyFiles(files ...audit.PolicyFile) Option {
	return func(o *options) { o.policyFiles = append(o.policyFiles, files...) }
}

// WithNotices adds notices to those of every plan, such as entries of an
// untrusted file that were ignored while the policy was read.
func WithNotices(n ...plan.Notice) Option {
	return func(o *options) { o.notices = append(o.notices, n...) }
}

// WithHost makes the session use a given snapshot instead of collecting one from this machine.
// It is for tools that explain a policy for another machine.
func WithHost(s *host.Snapshot) Option {
	return func(o *options) {
		o.snapshot = func(string) (*host.Snapshot, error) { return s, nil }
		o.environ = func() []string { return s.Environ }
	}
}

// WithVersion sets the program's version for the audit log.
func WithVersion(v string) Option { return func(o *options) { o.version = v } }

// WithInspection makes rules about requests inside TLS, and secrets, work: without it, a strict policy that has any
// does not run. It is an option because it links net/http and crypto/tls:
//
//	cloche.WithInspection(https.Inspect)
func WithInspection(i Inspection) Option { return func(o *options) { o.inspect = i } }

// WithDeferredPlan makes the plan when it is first needed, not in Open. Errors of a policy
// that does not fit this machine appear then. It is for programs that open a session for one
// command, which would otherwise make two plans. The session uses the lists of the policy
// without copying them: do not change them while it is open.
func WithDeferredPlan() Option { return func(o *options) { o.deferred = true } }

// WithWarm makes the sandbox once, for the session's first command, and keeps it ready: each
// command then costs little more than one without a sandbox. Only this process holds the
// sandbox; when the process ends in any way, the sandbox is gone.
//
// Every command still has its own processes, /proc, IPC objects, empty temporary folders
// (/tmp, /var/tmp, /dev/shm) and limits; nothing in /dev can be written but the devices.
// Commands share the network namespace. One can reach what another one listens to on the
// private loopback or on an abstract unix socket.
//
// The layout of files is that of the first command. Before each command, cloche re-checks the
// policy's paths and makes a new sandbox if any changed, or if a path that a rule hides now
// exists. Changes that no rule names are not noticed: a unix socket that the host has made
// since, or a file system that it has mounted. [Session.Refresh] gives the next command a new
// sandbox.
//
// After a command has ended, cloche prepares the next command's own parts; if commands follow
// each other quickly, it does so while they run. A process of cloche waits for the next
// command, for a minute at most, and ends with the session.
//
// If the policy keeps privileges, or the backend has no warm sessions, commands run as they do
// without this option; a notice of the first command says so.
func WithWarm() Option {
	return func(o *options) { o.warm, o.sharing = true, builtin.Apart }
}

// WithWarmFast is like [WithWarm], but commands also share processes, /proc, IPC objects and
// temporary folders. Commands are a little cheaper; use it for commands that trust each other.
// One command sees the others, can signal them, trace them where the kernel allows it, and
// read what they leave in /tmp. The limit on processes is enforced by sampling, for an
// ordinary user too. Toward the host, commands are confined as always, and the processes that
// a command leaves running end with it.
func WithWarmFast() Option {
	return func(o *options) { o.warm, o.sharing = true, builtin.Together }
}
