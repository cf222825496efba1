package plan

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/cloche-dev/cloche/internal/show"
	"github.com/cloche-dev/cloche/policy"
)

// A Decision says whether one operation is allowed, by which rule, and what would allow
// it. It is plain data. One package makes all of them from a plan: `cloche check`,
// `cloche verify`, the broker and the network proxy all ask it.
type Decision struct {
	Op Op `json:"op"`
	// Path is the file as seen inside, with symbolic links resolved, the path of a
	// request, or the name of a system call. In an answer of Session.Check, it is the
	// host's path.
	Path string `json:"path,omitempty"`
	// Host is the name or address that was asked for, Addr the address that it
	// led to, if that is known.
	Host string     `json:"host,omitempty"`
	Addr netip.Addr `json:"addr,omitzero"`
	Port int        `json:"port,omitempty"`
	// Protocol is tcp, udp or icmp.
	Protocol string `json:"protocol,omitempty"`
	// Method is that of a request.
	Method string `json:"method,omitempty"`

	Allowed bool `json:"allowed,omitempty"`
	// Access is what the rule gives at Path.
	Access policy.Access `json:"access"`
	// Rule names the deciding rule in the words of a policy file, Subject is its
	// path, pattern or host.
	Rule    string        `json:"rule"`
	Subject string        `json:"subject"`
	Reason  string        `json:"reason,omitempty"`
	Origin  policy.Origin `json:"origin"`
	// At is the path, the judged one or a folder above it, that the rule matches.
	At string `json:"at,omitempty"`
	// Line is the line of the plan that decided in an answer of Session.Check, or nil if
	// something else did: a pattern, a list of hosts, cloche itself.
	Line *Path `json:"-"`
	// Outside: without a sandbox the system would have refused it as well, so that
	// no option helps.
	Outside bool `json:"refused_outside,omitempty"`

	// Fix is what would allow it, given as options of the command. It is empty where no
	// option does, and NoFix says why and what to do instead, unless Reason does.
	Fix   []policy.Edit `json:"fix,omitempty"`
	NoFix string        `json:"-"`
	// Narrower allows less than Fix, and is enough if the file or folder is made outside
	// first. It is nil where Fix opens no more than needed.
	Narrower *policy.Edit `json:"fix_if_made_outside,omitempty"`
	// Ask is what a person can be asked for. There may be some where Fix has none: a grant
	// overrules the options that a session began with, and what an untrusted file takes away.
	Ask []policy.Edit `json:"-"`
}

// A Denial is a decision against something that a command attempted, once or several
// times, and who it was.
type Denial struct {
	Decision
	// Pid is the process as the host numbers it, Program the name it runs under and
	// Argv its command line: the first of those that made the same attempt. What
	// looks like a secret in Argv is taken out, and a long one is cut.
	Pid     int      `json:"pid,omitempty"`
	Program string   `json:"program,omitempty"`
	Argv    []string `json:"argv,omitempty"`
	// Count is how often that happened, Time when it first did.
	Count int       `json:"count"`
	Time  time.Time `json:"time,omitzero"`
}

// An Op is what a command attempted.
type Op string

// The operations.
const (
	OpRead    Op = "read"
	OpWrite   Op = "write"
	OpCreate  Op = "create"
	OpMkdir   Op = "mkdir"
	OpRename  Op = "rename"
	OpLink    Op = "link"
	OpSymlink Op = "symlink"
	OpUnlink  Op = "unlink"
	OpExec    Op = "exec"
	OpCall    Op = "call" // a system call that the filter denies
	// Of the network.
	OpConnect Op = "connect" // a connection, a datagram or a ping
	OpResolve Op = "resolve" // a name that is looked up
	OpRequest Op = "request" // a request of plain HTTP
)

// Changes reports whether the operation changes a file or a directory.
func (o Op) Changes() bool {
	switch o {
	case OpWrite, OpCreate, OpMkdir, OpRename, OpLink, OpSymlink, OpUnlink:
		return true
	}
	return false
}

// ReadsHost is where the lines come from that show the host's files read-only: that of
// all paths, and those of homes in a folder that is hidden otherwise.
var ReadsHost = policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: reads: host"}

// Protects reports whether the rule keeps what it is about from changes.
func (d *Decision) Protects() bool { return d.Rule == "paths.protect" }

// OnlyReads reports whether the rule lets a path be read, and says no more: a change is
// denied there because no rule allows it.
func (d *Decision) OnlyReads() bool { return d.Access == policy.Read && d.Rule == "paths.read" }

// NotWritable reports whether a change is denied because no rule lets the path be
// written.
func (d *Decision) NotWritable() bool { return d.Op.Changes() && d.OnlyReads() }

// Object is what the operation is about.
func (d *Decision) Object() string {
	switch {
	case d.Op == OpResolve:
		return d.Host
	case d.Op == OpRequest:
		return d.Method + " http://" + show.HostPort(d.Host, d.Port, 80) + d.Path
	case d.Op != OpConnect, d.Path != "": // a file, a call or a unix socket
		return d.Path
	}
	s := show.HostPort(d.Host, d.Port, 0)
	if d.Protocol != "" && d.Protocol != "tcp" {
		s = d.Protocol + "://" + s
	}
	if d.Addr.IsValid() && d.Addr.String() != d.Host {
		s += " (" + d.Addr.String() + ")"
	}
	return s
}

// Because is the rule that decided, where it comes from and why it is there.
func (d *Decision) Because() string {
	s := d.Rule
	if d.Subject != "" {
		s += " " + show.Visible(d.Subject)
	}
	s += " (" + show.Visible(d.Origin.String())
	if d.Reason != "" {
		s += ", " + show.Visible(d.Reason)
	}
	return d.UnlessNotWritable(s + ")")
}

// UnlessNotWritable returns the words for a rule. A change that is denied because no rule
// allows it says so first, and names the rule that lets the path be read, unless that is
// the one about all paths.
func (d *Decision) UnlessNotWritable(rule string) string {
	const notWritable = "not in the writable paths"
	switch {
	case !d.NotWritable():
		return rule
	case d.At == "/", d.Origin == ReadsHost:
		return notWritable
	}
	return notWritable + ": " + rule
}

// String returns the denial and its rule as one line with no control characters,
// whatever the names in it are.
func (d *Denial) String() string { return d.Describe(show.Visible(d.Object())) }

// Describe is String with other words for the object.
func (d *Denial) Describe(object string) string {
	s := "denied " + string(d.Op) + " " + object
	if d.Program != "" {
		s += " by " + show.Visible(d.Program)
	}
	if d.Count > 1 {
		s += " (" + strconv.Itoa(d.Count) + " times)"
	}
	return s + ": " + d.Because()
}
