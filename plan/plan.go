// Package plan describes what will be enforced: one line for each path, variable, socket and
// limit, each with the rule that it comes from. A plan is made from a policy and a snapshot of
// the machine and never changes afterwards. Backends, `cloche explain` and `cloche check` use
// only the plan.
//
// A plan contains paths and access, not mounts, so that a backend without mounts can enforce
// it.
package plan

import (
	"slices"
	"time"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/policy"
)

// A Plan is everything that is enforced for one run.
type Plan struct {
	// Workspace is the host path of the folder that the command works in.
	Workspace string `json:"workspace"`
	// Inside is the workspace's path inside. It is the same unless it is remapped.
	Inside string `json:"inside"`
	// Home is the host path of the caller's home folder, with links resolved.
	Home string `json:"-"`
	// Command is what runs, or nil in a plan that is only shown.
	Command *Command `json:"command,omitempty"`
	// Paths are sorted by path. The line with the longest matching path decides.
	Paths []Path `json:"paths"`
	// Absent are paths that do not exist now, and that a rule hides or, inside a writable
	// folder, excludes from patterns that protect. No backend can mount anything on them. A
	// question about such a path is answered by its rule.
	Absent []Absent `json:"-"`
	// Repeated are lines that take away access which the line around them does not give
	// either, so they have no effect now. If a grant opens that line while the command runs,
	// they count again.
	Repeated []Path `json:"-"`
	// Globs are rules for every path that matches a pattern, now and later.
	Globs []Glob `json:"globs,omitempty"`
	// Exempt are folders in which patterns do not protect.
	Exempt  []Exemption `json:"exempt,omitempty"`
	Network Network     `json:"network"`
	// Secrets are what the command can use in requests and cannot read.
	Secrets []Secret     `json:"secrets,omitempty"`
	Sockets []SocketPath `json:"sockets,omitempty"`
	// Datagrams is the origin of the rule that allows unix datagram sockets even if the kernel
	// cannot control where they send to. It is nil if there is no such rule.
	Datagrams *policy.Origin `json:"datagrams,omitempty"`
	// Bus is the session bus, or nil if the command has none.
	Bus    *Bus    `json:"bus,omitempty"`
	Env    []Var   `json:"env"`
	Limits []Limit `json:"limits"`
	// Review is where the command's changes go, or nil if they are made at once.
	Review *Review `json:"review,omitempty"`
	// Privileged keeps the caller's capabilities.
	Privileged bool `json:"privileged,omitempty"`
	// Asks: a denied operation waits while a person is asked about it.
	Asks bool `json:"asks,omitempty"`
	// Strict: do not run if a rule cannot be enforced.
	Strict bool `json:"strict"`
	// Denials says which denials are recorded.
	Denials policy.Recording `json:"denials,omitempty"`
	// Notices are what a person should know: entries that were skipped,
	// dropped, or ignored because their file is not trusted.
	Notices []Notice `json:"notices,omitempty"`
}

// WithNotices returns a copy of the plan with more notices, or the plan itself if there are
// none.
func (p *Plan) WithNotices(more ...Notice) *Plan {
	if len(more) == 0 {
		return p
	}
	told := *p
	told.Notices = slices.Concat(p.Notices, more)
	return &told
}

// A Command is the program to run inside.
type Command struct {
	// Path is the program's path inside, absolute.
	Path string `json:"path"`
	// Args are the arguments, Args[0] the name it is called by.
	Args []string `json:"args"`
	// Dir is the working folder inside.
	Dir string `json:"dir"`
	// ExtraFiles is how many descriptors from 3 on belong to the command.
	ExtraFiles int `json:"extra_files,omitempty"`
	// Terminal gives the command a controlling terminal, its standard input.
	Terminal bool `json:"terminal,omitempty"`
}

// Content is what the command finds at a path.
type Content int

// The contents.
const (
	Host    Content = iota // what the host has at Source
	Empty                  // nothing, or if writable a private folder that is deleted with the run
	Proc                   // the run's own /proc
	Devices                // a minimal /dev
	Text                   // a file with the text of Path.Text
	Link                   // a symbolic link to Path.Target
)

var contentNames = [...]string{"host", "empty", "proc", "devices", "text", "link"}

// String returns the content's name.
func (c Content) String() string {
	if c < 0 || int(c) >= len(contentNames) {
		return "invalid"
	}
	return contentNames[c]
}

// MarshalText writes the content's name.
func (c Content) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// A Path gives an access to one path inside and all below it.
type Path struct {
	// Path is the path as seen inside: clean, absolute, without symbolic links.
	Path   string        `json:"path"`
	Access policy.Access `json:"access"`
	// Content says what is there. Source is the host path for Host. For an Empty folder whose
	// entries have lines of their own, it is the host path of the folder that it replaces.
	Content Content `json:"content"`
	Source  string  `json:"source,omitempty"`
	// Kind is the type of the host's file. What is mounted on it must have the same type.
	// Missing is only possible if Protect is set.
	Kind   host.Kind `json:"kind"`
	Target string    `json:"target,omitempty"`
	Text   string    `json:"text,omitempty"`
	// Protect: the path must not be changed, or created if it does not exist yet.
	Protect bool `json:"protect,omitempty"`
	// Optional: if the rule cannot be enforced, that is reported and the command still runs.
	Optional bool `json:"optional,omitempty"`
	// Found: a search found the path when the plan was made. The rule is about a name, and
	// applies only to the files that existed then.
	Found bool `json:"found,omitempty"`
	// Create: the folder Source is created before the run. It is in cloche's own store, or the
	// path itself if a rule asks for that.
	Create bool `json:"create,omitempty"`
	// MountPoint is a folder of the host that is created before the run, as the mount point of
	// a persisted folder inside a writable one.
	MountPoint string `json:"mount_point,omitempty"`
	// Private: other users cannot enter the private folder. Without it, the folder is like
	// /tmp.
	Private bool `json:"private,omitempty"`
	// Volatile: the path may be gone when the command starts, for example because a server
	// removed its socket. Then nothing is mounted there.
	Volatile bool `json:"volatile,omitempty"`
	// Locked: the line protects cloche itself. No rule can open it.
	Locked bool `json:"-"`
	// Written is the path as written in the rule, if that differs.
	Written string        `json:"written,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Origin  policy.Origin `json:"origin"`
}

// An Absent is a path that does not exist, and the rule about it. It is small because
// there are many: the presets have a thousand rules about files that most machines
// lack, and a whole [Path] for each would slow down the start of a command.
type Absent struct {
	Path string
	// Rule must not change. Its Path is the path as written.
	Rule *policy.PathRule
	// Implied: the rule was written for another path and also applies to this one.
	Implied bool
}

// Line returns the line that the plan would have if the path existed.
func (a Absent) Line() Path {
	e := Path{Path: a.Path, Content: Empty, Kind: hostfs.Missing, Access: a.Rule.Access, Reason: a.Rule.Reason, Origin: a.Rule.Origin}
	if a.Rule.Path != a.Path && !a.Implied {
		e.Written = a.Rule.Path
	}
	return e
}

// MadeFirst returns the folders that have to be created before the run.
func (e *Path) MadeFirst() []string {
	switch {
	case !e.Create:
		return nil
	case e.MountPoint != "":
		return []string{e.Source, e.MountPoint}
	}
	return []string{e.Source}
}

// Persisted reports whether the path shows a folder of cloche's own store.
func (e *Path) Persisted() bool {
	return e.Create && e.Content == Host && e.Source != e.Path
}

// A Glob is a rule for every path that matches a pattern.
type Glob struct {
	Pattern string        `json:"pattern"`
	Access  policy.Access `json:"access"`
	// ExceptUnder are folders in which the rule does not apply, because programs fill them
	// with what they download: node_modules and the like. A plain name matches at any depth
	// below the line of Paths that decides; an entry that begins with a slash is one folder.
	// The list is derived from Plan.Exempt, and hundreds of rules share it.
	ExceptUnder []string `json:"-"`
	// Optional: if the rule cannot be enforced, that is reported and the command still runs.
	Optional bool          `json:"optional,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Origin   policy.Origin `json:"origin"`
}

// An Exemption is a folder in which patterns of its own layer and of lower layers do not
// protect.
type Exemption struct {
	// Folder is a name, which matches at any depth, or an absolute path.
	Folder string        `json:"folder"`
	Reason string        `json:"reason,omitempty"`
	Origin policy.Origin `json:"origin"`
}

// A SocketPath is a unix socket that the command may connect to. For an abstract socket, Path
// and Source are the same "@name".
type SocketPath struct {
	Path   string `json:"path"`
	Source string `json:"source"`
	// Variable, if any, is an environment variable that tells programs where the socket is,
	// and Value its value. HostValue is the value for programs that see the host's own paths.
	Variable  string        `json:"variable,omitempty"`
	Value     string        `json:"value,omitempty"`
	HostValue string        `json:"-"`
	Reason    string        `json:"reason,omitempty"`
	Origin    policy.Origin `json:"origin"`
}

// A Var is one variable of the command's environment. Its value may be a secret, so it is not
// in the JSON.
type Var struct {
	Name   string        `json:"name"`
	Value  string        `json:"-"`
	Origin policy.Origin `json:"origin"`
}

// The names of the limits.
const (
	LimitTime      = "time"       // nanoseconds
	LimitOutput    = "output"     // bytes
	LimitMemory    = "memory"     // bytes
	LimitProcesses = "processes"  // count
	LimitOpenFiles = "open_files" // count
	LimitFileSize  = "file_size"  // bytes
)

// A Limit is one limit. The value policy.Unlimited means no limit.
type Limit struct {
	Name   string        `json:"name"`
	Value  int64         `json:"value"`
	Origin policy.Origin `json:"origin"`
}

// Limit returns the value of the limit with that name, or policy.Unlimited if the plan has
// none.
func (p *Plan) Limit(name string) int64 {
	for _, l := range p.Limits {
		if l.Name == name {
			return l.Value
		}
	}
	return policy.Unlimited
}

// Timeout returns the limit on wall time, or 0 if there is none.
func (p *Plan) Timeout() time.Duration {
	return time.Duration(max(0, p.Limit(LimitTime)))
}

// Environ returns the command's environment as "NAME=value".
func (p *Plan) Environ() []string {
	env := make([]string, len(p.Env))
	for i, v := range p.Env {
		env[i] = v.Name + "=" + v.Value
	}
	return env
}

// A NoticeKind classifies a Notice.
type NoticeKind string

// The kinds of notice.
const (
	NoticeSkipped NoticeKind = "skipped" // an optional path that does not exist
	NoticeDropped NoticeKind = "dropped" // an entry whose variable is not set, or that a denylist overrides
	NoticeIgnored NoticeKind = "ignored" // an untrusted project file asked for more
	NoticeInfo    NoticeKind = "info"    // anything else worth knowing
	NoticeWarning NoticeKind = "warning" // something that a person probably did not mean
	// NoticePublished: which port of the host was chosen, if the policy leaves that open.
	NoticePublished NoticeKind = "published"
	// NoticeNetwork: an event in the command's network while it ran.
	NoticeNetwork NoticeKind = "network"
	// NoticeGranted and NoticeGrantDenied: a person's decision about access that the command
	// needed while it ran.
	NoticeGranted     NoticeKind = "granted"
	NoticeGrantDenied NoticeKind = "grant_denied"
	// NoticeUnconfined: the command runs without a sandbox, as requested.
	NoticeUnconfined NoticeKind = "unconfined"
)

// A Notice is one thing that a person should know about the plan.
type Notice struct {
	Kind   NoticeKind    `json:"kind"`
	Text   string        `json:"text"`
	Origin policy.Origin `json:"origin"`
}
