package plan

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/cloche-dev/cloche/internal/show"
	"github.com/cloche-dev/cloche/policy"
)

// A Decision says whether one operation is allowed, by which rule, and what would allow it. It
// is plain data. Package judge makes them from a plan: for `cloche check`, `cloche
// verify`, the broker and the network proxy.
type Decision struct {
	Op Op `json:"op"`
	// Path is the file as seen inside with symbolic links resolved, or the path of a request,
	// or the name of a system call. In the result of Session.Check, it is the host's path.
	Path string `json:"path,omitempty"`
	// Host is the requested name or address, Addr the address that it resolved to, if known.
	Host string     `json:"host,omitempty"`
	Addr netip.Addr `json:"addr,omitzero"`
	Port int        `json:"port,omitempty"`
	// Protocol is tcp, udp or icmp, or https for a request inside TLS.
	Protocol string `json:"protocol,omitempty"`
	// Method is the method of a request.
	Method string `json:"method,omitempty"`

	Allowed bool `json:"allowed,omitempty"`
	// Access is what the rule gives at Path.
	Access policy.Access `json:"access"`
	// Rule is the name of the deciding rule as in a policy file. Subject is its path, pattern
	// or host; of a system call it is what the call asked for.
	Rule    string        `json:"rule"`
	Subject string        `json:"subject"`
	Reason  string        `json:"reason,omitempty"`
	Origin  policy.Origin `json:"origin"`
	// At is the path that the rule matched: the path in question, or a folder above it.
	At string `json:"at,omitempty"`
	// Line is the plan's line that decided, in a result of Session.Check. It is nil if
	// something else decided: a pattern, a list of hosts, or cloche itself.
	Line *Path `json:"-"`
	// Outside: the system would have denied the operation without a sandbox too, so no option
	// helps.
	Outside bool `json:"refused_outside,omitempty"`

	// Fix is what would allow the operation, as options of the command. If no option does, it
	// is empty, and NoFix or Reason says why and what to do instead.
	Fix   []policy.Edit `json:"fix,omitempty"`
	NoFix string        `json:"-"`
	// Narrower allows less than Fix, and is enough if the file or folder is created outside
	// first. It is nil if Fix opens no more than needed.
	Narrower *policy.Edit `json:"fix_if_made_outside,omitempty"`
	// Ask are the edits that a person can be asked to grant. It may have some where Fix has
	// none: a grant overrides the options that a session was opened with, and what an
	// untrusted file takes away.
	Ask []policy.Edit `json:"-"`
}

// A Denial is a decision against something that a command attempted, once or several times,
// with the process that attempted it.
type Denial struct {
	Decision
	// Pid is the process id on the host, Program the process's name and Argv its command line.
	// They are of the first process that made the attempt. Argv is shortened, and parts of it
	// that look like secrets are removed.
	Pid     int      `json:"pid,omitempty"`
	Program string   `json:"program,omitempty"`
	Argv    []string `json:"argv,omitempty"`
	// Count is the number of attempts, Time the time of the first one.
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
	// Operations on the network.
	OpConnect Op = "connect" // a connection, a datagram or a ping
	OpResolve Op = "resolve" // the lookup of a name
	OpRequest Op = "request" // an HTTP request, plain or inside TLS
)

// Changes reports whether the operation changes a file or a directory.
func (o Op) Changes() bool {
	switch o {
	case OpWrite, OpCreate, OpMkdir, OpRename, OpLink, OpSymlink, OpUnlink:
		return true
	}
	return false
}

// ReadsHost is the origin of the lines that show the host's files read-only: the line for "/",
// and those of homes in a folder that is otherwise hidden.
var ReadsHost = policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: reads: host"}

// Protects reports whether the deciding rule is one that protects paths.
func (d *Decision) Protects() bool { return d.Rule == "paths.protect" }

// OnlyReads reports whether the deciding rule only makes a path readable. A change is then
// denied because no rule allows it, not because a rule forbids it.
func (d *Decision) OnlyReads() bool { return d.Access == policy.Read && d.Rule == "paths.read" }

// NotWritable reports whether a change is denied because no rule makes the path writable.
func (d *Decision) NotWritable() bool { return d.Op.Changes() && d.OnlyReads() }

// Object describes what the operation is about: a file, an address, a name or a request.
func (d *Decision) Object() string {
	switch {
	case d.Op == OpResolve:
		return d.Host
	case d.Op == OpRequest:
		return d.Method + " " + d.site() + d.Path
	case d.Op == OpCall && d.Subject != "":
		return d.Path + " (" + d.Subject + ")"
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

// site returns the URL of a request without its path.
func (d *Decision) site() string {
	if d.Protocol == policy.HTTPS {
		return "https://" + show.HostPort(d.Host, d.Port, 443)
	}
	return "http://" + show.HostPort(d.Host, d.Port, 80)
}

// Because returns the rule that decided, its origin and its reason.
func (d *Decision) Because() string {
	s := d.Rule
	if d.Subject != "" && d.Op != OpCall {
		s += " " + show.Visible(d.Subject)
	}
	s += " (" + show.Visible(d.Origin.String())
	if d.Reason != "" {
		s += ", " + show.Visible(d.Reason)
	}
	return d.UnlessNotWritable(s + ")")
}

// UnlessNotWritable returns rule, the description of the deciding rule. If a change is denied
// because no rule allows it, it says that first, and then names the rule that makes the path
// readable, unless that is the one for all paths.
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

// String returns the denial and its rule as one line. Control characters in names are
// replaced.
func (d *Denial) String() string { return d.Describe(show.Visible(d.Object())) }

// Describe is String with another description of the object.
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
