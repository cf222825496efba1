package cloche

import (
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/plan"
)

// An Option sets something about a session that is not part of its policy.
type Option func(*options)

type options struct {
	workspace   string
	document    string
	registry    *backend.Registry
	snapshot    func(workspace string) (*host.Snapshot, error)
	sink        audit.Sink
	policyFiles []audit.PolicyFile
	ownPrograms []string
	notices     []plan.Notice
	version     string
	files       map[string]string // texts by path
	deferred    bool
	// environ is the caller's environment at the moment.
	environ func() []string
	warm    bool
	ask     *grant.Options
	desk    *grant.Desk // of somebody else
	sharing builtin.Sharing
}

// discard is the default sink.
type discard struct{}

func (discard) Record(audit.Event) error { return nil }

// WithWorkspace sets the folder that commands work on. The default is the one that the
// policy was made for with [policy.Workspace], and for other policies the
// working folder of the program.
func WithWorkspace(dir string) Option { return func(o *options) { o.workspace = dir } }

// WithFiles shows commands read-only files that the host does not have: texts by their paths.
// A file whose path is not in a folder of the sandbox's own, such as /run, is left out, and so
// are all on a backend without mounts.
func WithFiles(texts map[string]string) Option { return func(o *options) { o.files = texts } }

// WithDocument sets the folder that "urn:cloche:document" stands for.
func WithDocument(dir string) Option { return func(o *options) { o.document = dir } }

// WithRegistry sets the backends to choose from. The default is what
// [DefaultRegistry] returns.
func WithRegistry(r *backend.Registry) Option { return func(o *options) { o.registry = r } }

// WithAudit records every run in the sink. The default records nothing.
func WithAudit(s audit.Sink) Option { return func(o *options) { o.sink = s } }

// WithOwnPrograms names programs of the caller, its own file for example, that
// lie where commands may write. No command can change them: otherwise they would
// run outside of the sandbox at the next start.
func WithOwnPrograms(files ...string) Option {
	return func(o *options) { o.ownPrograms = append(o.ownPrograms, files...) }
}

// WithPolicyFiles names the files that the policy was read from. No command
// gets to write them, and the audit log names them.
func WithPolicyFiles(files ...audit.PolicyFile) Option {
	return func(o *options) { o.policyFiles = append(o.policyFiles, files...) }
}

// WithNotices adds notices to those of every plan, such as entries of an
// untrusted file that were ignored while the policy was read.
func WithNotices(n ...plan.Notice) Option {
	return func(o *options) { o.notices = append(o.notices, n...) }
}

// WithHost makes the session believe in a given machine instead of looking at
// the real one. It is for tools that explain a policy for another machine.
func WithHost(s *host.Snapshot) Option {
	return func(o *options) {
		o.snapshot = func(string) (*host.Snapshot, error) { return s, nil }
		o.environ = func() []string { return s.Environ }
	}
}

// WithVersion sets the program's version for the audit log.
func WithVersion(v string) Option { return func(o *options) { o.version = v } }

// WithDeferredPlan leaves the plan to whatever needs it first, and with it the errors
// of a policy that does not fit this machine. It is for programs that open a
// session for one command, which would otherwise pay for two plans. The session uses
// the lists of the policy without copying them: do not change them while it is open.
func WithDeferredPlan() Option { return func(o *options) { o.deferred = true } }

// WithWarm makes the sandbox once, for the session's first command, and keeps it
// ready: each command then costs little more than a plain one. Nobody but this
// process holds the sandbox, and when it ends, however it ends, it is gone.
//
// Every command still has processes, a /proc, IPC objects and empty temporary
// folders (/tmp, /var/tmp, /dev/shm) of its own, and its own limits; nothing in
// /dev can be written but the devices. Commands share the network namespace, so
// that one can reach what another one listens to on the private loopback or on an
// abstract unix socket.
//
// The layout of files is that of the first command. Before each command cloche
// looks whether the paths that the policy is about still lead where they did, and
// makes a new sandbox if not, also where a path that a rule hides has come into
// being. What no rule names is not looked for: a unix socket that the host has
// made since, or a file system that it has mounted. [Session.Refresh] makes the next
// command get a new sandbox.
//
// While a command runs, cloche gets ready what the next one has of its own: a
// process of cloche's waits for that command, for a minute at most, and ends with
// the session.
//
// A policy that keeps privileges, and a backend that cannot do this, make
// commands run as they do without this option; a notice of the first one says so.
func WithWarm() Option {
	return func(o *options) { o.warm, o.sharing = true, builtin.Apart }
}

// WithWarmFast is like [WithWarm], and commands also share processes, /proc, IPC objects
// and temporary folders: they are a little cheaper, and for commands that trust
// each other. One command sees the others, can signal them, trace them where the
// kernel allows it, and read what they leave in /tmp. The limit on processes is
// kept by sampling, for an ordinary user too. Toward the host they are confined as
// always, and what a command leaves running ends with it.
func WithWarmFast() Option {
	return func(o *options) { o.warm, o.sharing = true, builtin.Together }
}
