// Package plan says what will be enforced: one line for each path, variable,
// socket and limit, each with the rule that made it. A plan is made from a
// policy and a snapshot of the machine, never changes afterwards, and is the
// only thing that backends, `cloche explain` and `cloche check` look at.
//
// A plan speaks of paths and access, not of mounts: a backend that has no
// mounts enforces the same plan.
package plan

import (
	"time"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/policy"
)

// A Plan is everything that one run will be held to.
type Plan struct {
	// Workspace is the folder that the command works in, as the host names it.
	Workspace string `json:"workspace"`
	// Inside is the workspace's path inside; the same unless it is remapped.
	Inside string `json:"inside"`
	// Home is the caller's home folder, as the host names it, without links.
	Home string `json:"-"`
	// Command is what runs; nil in a plan that was made only to be looked at.
	Command *Command `json:"command,omitempty"`
	// Paths are sorted by path; the longest one that a path lies within decides.
	Paths []Path `json:"paths"`
	// Absent are paths that do not exist now, which a rule hides or, inside a
	// writable folder, takes out of what patterns protect. No backend can mask them;
	// whoever asks about them is told that they are hidden.
	Absent []Absent `json:"-"`
	// Repeated are lines that take away what the line around them does not give
	// either. Where more is given while the command runs, they count: see JudgeWith.
	Repeated []Path `json:"-"`
	// Globs are rules that hold for every path they match, now and later.
	Globs []Glob `json:"globs,omitempty"`
	// Exempt are folders in which patterns that protect do not hold.
	Exempt  []Exemption  `json:"exempt,omitempty"`
	Network Network      `json:"network"`
	Sockets []SocketPath `json:"sockets,omitempty"`
	// Datagrams is the rule by which the command may have unix datagram sockets where
	// the kernel cannot hold what they send to, nil if there is none.
	Datagrams *policy.Origin `json:"datagrams,omitempty"`
	// Bus is the session bus, nil if there is none.
	Bus    *Bus    `json:"bus,omitempty"`
	Env    []Var   `json:"env"`
	Limits []Limit `json:"limits"`
	// Privileged keeps the caller's capabilities.
	Privileged bool `json:"privileged,omitempty"`
	// Asks: a person is asked about what rules refuse while the command waits.
	Asks bool `json:"asks,omitempty"`
	// Strict refuses to run where something cannot be enforced.
	Strict bool `json:"strict"`
	// Denials says which refusals are on record.
	Denials policy.Recording `json:"denials,omitempty"`
	// Notices are what a person should know: entries that were skipped,
	// dropped, or ignored because their file is not trusted.
	Notices []Notice `json:"notices,omitempty"`
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

// Content is what is found at a path.
type Content int

// The contents.
const (
	Host    Content = iota // what the host has at Source
	Empty                  // nothing, or a private folder if writable; gone with the run
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

// A Path gives one path inside, and all below it, an access.
type Path struct {
	// Path is clean, absolute, free of symbolic links, as seen inside.
	Path   string        `json:"path"`
	Access policy.Access `json:"access"`
	// Content says what is there; Source is the host's path for Host, and for an Empty
	// folder whose entries are lines of their own that of the folder it stands for.
	Content Content `json:"content"`
	Source  string  `json:"source,omitempty"`
	// Kind is what the host has there: a mask must fit it. Missing is only
	// possible where Protect is set.
	Kind   host.Kind `json:"kind"`
	Target string    `json:"target,omitempty"`
	Text   string    `json:"text,omitempty"`
	// Protect: the path must stay as it is even if it does not exist yet.
	Protect bool `json:"protect,omitempty"`
	// Optional: where it cannot be held, that is reported, and is no reason not
	// to run.
	Optional bool `json:"optional,omitempty"`
	// Found: a search found the path when the plan was made. The rule is about such
	// names, and holds for the files of that moment only.
	Found bool `json:"found,omitempty"`
	// Create: Source is a folder that is made before the run: one of cloche's own
	// store, or the path itself where a rule has it made.
	Create bool `json:"create,omitempty"`
	// MountPoint is a folder of the host that is made before the run, so that there
	// is something in a writable folder to show a persisted one at.
	MountPoint string `json:"mount_point,omitempty"`
	// Private: a private folder is one that programs want nobody else to enter, and
	// not one like /tmp.
	Private bool `json:"private,omitempty"`
	// Volatile: the path may be gone by the time of the launch, as when a server
	// removes its socket. Nothing has to be covered then.
	Volatile bool `json:"volatile,omitempty"`
	// Locked: the line is cloche's own protection, which no rule opens.
	Locked bool `json:"-"`
	// Written is the path as the rule has it, where that differs.
	Written string        `json:"written,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Origin  policy.Origin `json:"origin"`
}

// An Absent is a path that does not exist, and the rule about it. It is small because
// there are many: the presets have a thousand rules about files that most machines
// lack, and a whole [Path] for each would slow down the start of a command.
type Absent struct {
	Path string
	// Rule must not change. Its Path is as it was written.
	Rule *policy.PathRule
}

// Line is the line that the plan would have if the path existed.
func (a Absent) Line() Path {
	e := Path{Path: a.Path, Content: Empty, Kind: hostfs.Missing, Access: a.Rule.Access, Reason: a.Rule.Reason, Origin: a.Rule.Origin}
	if a.Rule.Path != a.Path {
		e.Written = a.Rule.Path
	}
	return e
}

// MadeFirst are the folders that have to be made before the run.
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

// A Glob is a rule for every path that matches.
type Glob struct {
	Pattern string        `json:"pattern"`
	Access  policy.Access `json:"access"`
	// ExceptUnder are folders in which the rule does not hold, because programs
	// fill them with whatever they fetch: node_modules and the like. A name counts
	// only below the line of Paths that shows it; what begins with a slash is one
	// folder. They follow from Plan.Exempt, and hundreds of rules share them.
	ExceptUnder []string `json:"-"`
	// Optional: where it cannot be held, that is reported, and is no reason not
	// to run.
	Optional bool          `json:"optional,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Origin   policy.Origin `json:"origin"`
}

// An Exemption is a folder in which the patterns of its own layer, and of lower
// ones, do not protect.
type Exemption struct {
	// Folder is a name, at any depth, or an absolute path.
	Folder string        `json:"folder"`
	Reason string        `json:"reason,omitempty"`
	Origin policy.Origin `json:"origin"`
}

// A SocketPath is a unix socket that may be connected to. An abstract one has the
// same "@name" for Path and Source.
type SocketPath struct {
	Path   string `json:"path"`
	Source string `json:"source"`
	// Variable, if any, leads the command's programs to the socket, with Value.
	// HostValue is the value for programs that see the host's own paths.
	Variable  string        `json:"variable,omitempty"`
	Value     string        `json:"value,omitempty"`
	HostValue string        `json:"-"`
	Reason    string        `json:"reason,omitempty"`
	Origin    policy.Origin `json:"origin"`
}

// A Var is one variable of the command's environment. Its value may be a
// secret and is in no JSON.
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

// A Limit is one bound; policy.Unlimited takes it away.
type Limit struct {
	Name   string        `json:"name"`
	Value  int64         `json:"value"`
	Origin policy.Origin `json:"origin"`
}

// Limit returns the value of the limit of that name, policy.Unlimited if the
// plan has none.
func (p *Plan) Limit(name string) int64 {
	for _, l := range p.Limits {
		if l.Name == name {
			return l.Value
		}
	}
	return policy.Unlimited
}

// Timeout returns the wall-time limit; 0 is none.
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
	NoticeDropped NoticeKind = "dropped" // an entry whose variable is not set, or that the denylist beats
	NoticeIgnored NoticeKind = "ignored" // an untrusted project file asked for more
	NoticeInfo    NoticeKind = "info"    // anything else worth knowing
	NoticeWarning NoticeKind = "warning" // something that a person probably did not mean
	// NoticePublished: which port of the host was taken, where the policy leaves
	// the choice.
	NoticePublished NoticeKind = "published"
	// NoticeNetwork: something about the command's network that came up while it
	// ran.
	NoticeNetwork NoticeKind = "network"
	// NoticeGranted and NoticeGrantDenied: what somebody decided about access that
	// the command asked for while it ran.
	NoticeGranted     NoticeKind = "granted"
	NoticeGrantDenied NoticeKind = "grant_denied"
	// NoticeUnconfined: the command runs with no sandbox, as asked.
	NoticeUnconfined NoticeKind = "unconfined"
)

// A Notice is one thing that a person should know about the plan.
type Notice struct {
	Kind   NoticeKind    `json:"kind"`
	Text   string        `json:"text"`
	Origin policy.Origin `json:"origin"`
}
