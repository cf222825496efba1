// Package policy describes what a command may do: which paths it may read and write,
// what it may connect to, which variables it sees and how much it may use.
//
// A [Policy] is plain data. Its zero value is the strictest policy: nothing but
// the system folders is readable, nothing is writable, there is no network, the
// environment is empty, and anything that this machine cannot enforce is an
// error. Presets ([Workspace], [FromPreset]) and files ([Parse], [Merge]) allow more.
//
// The package does not use the machine. Paths are kept as written ("~/x", "$VAR",
// "urn:cloche:workspace"); they are expanded and resolved when a plan is made.
package policy

import "time"

// A Policy is everything that one sandbox should allow.
type Policy struct {
	// Disabled runs the command without a sandbox. That is always reported.
	Disabled bool
	// DisabledOrigin is where Disabled was set.
	DisabledOrigin Origin
	// Backend chooses how the policy is enforced.
	Backend Backend
	// Reads is the baseline of what can be read.
	Reads Reads
	// ReadsOrigin is where Reads was set.
	ReadsOrigin Origin
	// Paths are the rules for the file system. The longest match wins.
	Paths []PathRule
	// Exempt are folders in which the patterns of protecting rules do not apply.
	Exempt []Exemption
	// Binds show a host path at another path inside.
	Binds []Bind
	// Persist are folders that are writable inside and kept from run to run in cloche's own
	// store. The real folder of that name never changes.
	Persist []Persist
	// Workspace is the folder that the policy was made for, see [Workspace]. Commands
	// start there, unless their session names another folder. It allows nothing by
	// itself.
	Workspace string `json:",omitempty"`
	// Remap is where the workspace appears inside; empty is its own path.
	Remap string
	// RemapOrigin is where Remap was set.
	RemapOrigin Origin
	// Tmp says whether the command has a private /tmp.
	Tmp       Tmp
	TmpOrigin Origin
	Home      Home
	// Review, unless empty, is the name of a review: the writable folders and files of the
	// host are shown copy-on-write, and what the command changes is kept in that review until
	// a person applies or discards it. See [DefaultReview].
	Review       string `json:",omitzero"`
	ReviewOrigin Origin `json:",omitzero"`
	// Hosts is the text of /etc/hosts inside. Empty means a minimal one, or the
	// host's own file where the network mode is NetworkHost.
	Hosts       string
	HostsOrigin Origin
	Network     Network
	// Secrets are values that the command can use and cannot read.
	Secrets []Secret `json:",omitempty"`
	Env     Env
	// Sockets are the unix sockets that may be connected to.
	Sockets []Socket
	// Bus is the user's session bus.
	Bus    Bus
	Limits Limits
	// Privileged keeps the caller's capabilities (root only) and makes no user namespace.
	Privileged bool
	// PrivilegedOrigin is where Privileged was set.
	PrivilegedOrigin Origin
	// Require says what happens if a rule cannot be enforced.
	Require Strength
	// Ask says who decides about denied operations.
	Ask Ask `json:",omitzero"`
	// Denials says which denials are recorded.
	Denials       Recording
	DenialsOrigin Origin
	// Cold gives each command of an agent a new sandbox: cloche agent exec keeps no warm one. The library does not look at
	// it: see WithWarm there.
	Cold       bool   `json:",omitzero"`
	ColdOrigin Origin `json:",omitzero"`
	// Tests are claims about this policy that `cloche policy test` checks.
	Tests []Test
	// errs are mistakes in options, which Validate reports.
	errs []error
}

// A PathRule gives an access to one path and everything below it.
type PathRule struct {
	// Path is absolute, or one of the forms "~/x", "$VAR/x", "${VAR:-default}/x",
	// "cwd", "urn:cloche:cwd", "urn:cloche:workspace", "urn:cloche:document",
	// "urn:cloche:self" (the program that makes the sandbox).
	// A rule that hides or protects may also have a pattern, which applies to files
	// that are created later too: "*" and "?" match parts of a name, "[ab]" and
	// "[^ab]" one character, "{a,b}" alternatives, and "**" any number of folders;
	// "**/x" is x at any depth.
	Path   string `json:"path" jsonschema:"The path: absolute, relative to the file, ~/x, $VAR, ${VAR:-default}, cwd, urn:cloche:workspace; under hide and protect also a pattern with *, **, ?, [ab] and {a,b}."`
	Access Access `json:"-"`
	// Optional rules with a missing path are skipped and reported, not errors. For a
	// rule about names (a pattern, or Protect for a path that does not exist yet),
	// Optional also means that a machine which cannot enforce the rule runs the
	// command and reports a gap.
	Optional bool `json:"optional,omitempty" jsonschema:"Skip the entry, with a notice, if the path does not exist."`
	// Create creates a missing folder before a command runs. It needs an Access of
	// Write, and has no effect in an untrusted file.
	Create bool `json:"create,omitempty" jsonschema:"Create the folder, for its owner alone, before the command runs if it does not exist. Only under write."`
	// Protect enforces an Access of Read inside a writable folder, even for a path
	// that does not exist yet.
	Protect bool `json:"-"`
	// Found limits an Access of Hidden to the files of the workspace that match
	// Path, "**/NAME", when a command starts. Files that are created later are not
	// hidden. Such a rule costs nothing while the command runs.
	Found bool `json:"-"`
	// Reason is shown with the rule.
	Reason string `json:"reason,omitempty" jsonschema:"Why, shown with the rule."`
	Origin Origin `json:"-"`
}

// An Exemption is a folder that programs fill with downloads or build results, and
// in which the patterns of protecting rules therefore do not apply. It exempts from
// patterns of its own layer and of lower ones: a preset's exemption does not open
// what a user's own rule protects.
type Exemption struct {
	// Folder is a name, which matches any folder of that name below a writable one,
	// or a path in the forms of [PathRule], except a pattern.
	Folder string `json:"path" jsonschema:"A folder's name, or a path. Globs are not allowed."`
	// Reason is shown with the exemption.
	Reason string `json:"reason,omitempty" jsonschema:"Why, shown with the exemption."`
	Origin Origin `json:"-"`
}

// A Bind shows Source, a path of the host, at Target inside.
type Bind struct {
	Source   string `json:"source" jsonschema:"The host's path."`
	Target   string `json:"target,omitempty" jsonschema:"The path inside. Default: the same."`
	ReadOnly bool   `json:"read_only,omitempty" jsonschema:"Show it read-only."`
	Optional bool   `json:"optional,omitempty" jsonschema:"Skip the entry, with a notice, if the source does not exist."`
	Origin   Origin `json:"-"`
}

// A Persist is a folder in cloche's own store; see [Policy].
type Persist struct {
	Path   string
	Origin Origin
}

// A Socket is a unix socket that the command may connect to, matched exactly.
type Socket struct {
	// Path is a path in the forms of [PathRule], except a pattern; "@name" for an
	// abstract socket; or [SSHAgent], [GPGAgent] or [Datagrams].
	Path     string `json:"path" jsonschema:"The socket's path, @name for an abstract socket, ssh-agent, gpg-agent or datagrams. Globs are not allowed."`
	Optional bool   `json:"optional,omitempty" jsonschema:"Skip the entry, with a notice, if the path does not exist."`
	Reason   string `json:"reason,omitempty" jsonschema:"Why, shown with the rule."`
	Origin   Origin `json:"-"`
}

// Home separates the value of $HOME from the visibility of the home folder.
type Home struct {
	// Value is the value of $HOME inside; empty is the real one.
	Value string
	// Hidden hides the real home folder, except for what other rules grant.
	Hidden bool
	Origin Origin
}

// Env says which variables the command sees. Variables of sockets, agents and
// secrets never pass from the caller's environment, whatever Mode and Pass say. To
// pass one, set its value with Set.
type Env struct {
	Mode   EnvMode
	Pass   []EnvPass
	Set    []EnvSet
	Origin Origin
}

// An EnvPass passes a variable from the caller. Name may end in "*".
type EnvPass struct {
	Name   string
	Origin Origin
}

// An EnvSet sets a variable to a value.
type EnvSet struct {
	Name, Value string
	Origin      Origin
}

// Unlimited is the value of a limit that does not apply.
const Unlimited = -1

// Limits are limits on what one run may use. Zero means the default, never unlimited.
type Limits struct {
	Time      time.Duration // wall time
	Output    int64         // bytes of standard output and error together
	Memory    int64         // resident bytes of all processes together
	Processes int64         // processes and threads
	OpenFiles int64         // descriptors of one process
	FileSize  int64         // bytes of one file
	// Origin has the origin of each limit that was set, by its name in a file.
	Origin map[string]Origin
}

// An Ask says who decides about denied operations, if the front end asks anybody.
// Files of projects cannot set it.
type Ask struct {
	// Hook is a program that decides: an absolute path, or one that begins with ~/.
	// Empty means none.
	Hook string
	// Timeout is how long a call waits; 0 leaves it to the front end.
	Timeout time.Duration
	Origin  Origin
}

// A Backend says which backend to use, and what to do if none works.
type Backend struct {
	// Name is empty or "auto" for the best that works, "required" for the best
	// that works and confines, or one backend's name.
	Name     string
	Fallback Fallback
	// BwrapPath and BwrapArgs configure the bwrap backend: the binary (empty:
	// found in PATH) and arguments added before the command.
	BwrapPath string
	BwrapArgs []string
	Origin    Origin
}

// A Test claims that an action is allowed or denied by the policy.
type Test struct {
	Action string // read, write, exec or connect
	Target string
	Allow  bool
	Origin Origin
}
