package plan

import (
	"encoding/json"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

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

// RuleCalls is the filter of system calls, which no policy changes.
const RuleCalls = "system-call filter"

// A Denial is one refused attempt, or several equal ones.
type Denial struct {
	Op Op `json:"op"`
	// Path is the file as seen inside, with symbolic links resolved, the path of a
	// request, or the name of a system call.
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
	// Pid is the process as the host numbers it, Program the name it runs under and
	// Argv its command line: the first of those that made the same attempt. What
	// looks like a secret in Argv is taken out, and a long one is cut.
	Pid     int      `json:"pid,omitempty"`
	Program string   `json:"program,omitempty"`
	Argv    []string `json:"argv,omitempty"`
	// Verdict has the rule that refused.
	Verdict
	// Outside: without a sandbox the system would have refused it as well, so that
	// no option helps.
	Outside bool `json:"refused_outside,omitempty"`
	// Count is how often that happened, Time when it first did.
	Count int       `json:"count"`
	Time  time.Time `json:"time,omitzero"`

	// inside and host are the workspace's two places, where it has two: options name
	// the host's.
	inside, host string
	// home is the caller's home folder, empty if it is not known.
	home string
	// works reports whether an edit allows it, nil if nobody can tell.
	works func(d *Denial, e policy.Edit) bool
}

// FixIf has Fix return only edits for which works is true. It is called for each
// call of Fix, so it should remember.
func (d *Denial) FixIf(works func(d *Denial, e policy.Edit) bool) { d.works = works }

// Of notes which plan the refusal is by.
func (d *Denial) Of(p *Plan) {
	d.home = p.Home
	if p.Inside != p.Workspace {
		d.inside, d.host = p.Inside, p.Workspace
	}
}

// OnHost returns a path inside as rules name it: that of the host, also of what is hidden.
func (d *Denial) OnHost(path string) string {
	if d.inside == "" || !pathx.Within(d.inside, path) {
		return path
	}
	return pathx.Rebase(d.inside, d.host, path)
}

// Fix returns the edits of the policy, given as options of the command, that would
// allow it, or nothing where no option does.
func (d *Denial) Fix() []policy.Edit {
	e, ok := d.pathEdit()
	if !ok || !d.stands(e.Value) && d.isKnownToWork(e) {
		return d.Ask()
	}
	return d.below()
}

// below returns the edit that opens, in what a rule protects, only what was attempted. The
// rule may stand against an option for its own path and not against one for a path below:
// whoever can try it says so.
func (d *Denial) below() []policy.Edit {
	e := policy.Edit{Field: "paths.write", Value: d.opened()}
	if d.works == nil || d.Outside || !d.Protects() || e.Value == d.At || !pathx.Within(d.At, e.Value) || !d.isKnownToWork(e) {
		return nil
	}
	e.Value = d.OnHost(e.Value)
	return []policy.Edit{e}
}

// isKnownToWork reports whether an edit allows it, or nobody can tell.
func (d *Denial) isKnownToWork(e policy.Edit) bool {
	e.Value = d.OnHost(e.Value)
	return d.Allows(e)
}

// Allows reports whether an edit, which names the host's path, allows it, as far as anybody
// can tell.
func (d *Denial) Allows(e policy.Edit) bool { return d.works == nil || d.Outside || d.works(d, e) }

// Ask returns the edits that a person can be asked for. There may be some where Fix
// has none: a grant overrules the options that a session began with, and what an
// untrusted file takes away.
func (d *Denial) Ask() []policy.Edit {
	if d.network() {
		return d.netEdits()
	}
	switch {
	case d.Outside, d.Rule == RuleSockets && d.At == "":
		return nil
	case d.Rule == RuleSockets:
		return []policy.Edit{{Field: "sockets", Value: d.At}}
	}
	e, ok := d.pathEdit()
	if !ok {
		return nil
	}
	e.Value = d.OnHost(e.Value)
	return []policy.Edit{e}
}

// pathEdit is the edit that allows the use of a file, with its path as seen inside.
// ok is false where no rule for a path allows it.
func (d *Denial) pathEdit() (e policy.Edit, ok bool) {
	switch {
	case d.network(), d.Op == OpCall, d.Rule == RuleSockets, strings.HasPrefix(d.Rule, "git."), d.locked():
		return e, false
	case d.Op == OpRead, d.Op == OpExec:
		return policy.Edit{Field: "paths.read", Value: d.Path}, true
	case d.Protects():
		return d.unprotect(), true
	case d.shared() && d.Op == OpMkdir:
		return policy.Edit{Field: "persist", Value: d.Path}, true
	case d.shared():
		return e, false
	}
	e = policy.Edit{Field: "paths.write", Value: d.opened()}
	return e, e.Value != "/"
}

// sharedFolders are those of a home in which every program has a file or folder of
// its own.
var sharedFolders = []string{"", "/.cache", "/.config", "/.local", "/.local/share", "/.local/state"}

// shared reports whether a new name was refused in the caller's home, or in a folder
// of it that all programs share. To open that would be to open what all of them
// have. A folder can be one of the sandbox's own instead; a file has to be made
// outside.
func (d *Denial) shared() bool {
	if d.home == "" || d.Op != OpMkdir && d.Op != OpCreate {
		return false
	}
	rest, in := strings.CutPrefix(path.Dir(d.OnHost(d.Path)), d.home)
	return in && slices.Contains(sharedFolders, rest)
}

// stands reports whether the rule holds against an option for the path. One that an
// option or the program itself gave is no weaker than another option: the same path
// twice gives the stricter, and a pattern holds against a path. An untrusted file takes
// away whatever is said elsewhere about the same path.
func (d *Denial) stands(path string) bool {
	same := path == d.At
	pattern := pathx.IsGlob(strings.TrimPrefix(d.Subject, "?"))
	switch {
	case d.Origin.Untrusted:
		return same && (!pattern || d.Rule == ruleHideFound)
	case d.Origin.Layer == policy.LayerCommand:
		return same || pattern
	}
	return false
}

// locked reports whether the rule is cloche's own, which no other opens: about its
// files, /proc, /sys and the like. That everything else is closed is no such rule.
func (d *Denial) locked() bool {
	return d.Origin.Layer == policy.LayerBuiltin && d.At != "/" && d.At != "" && d.Origin != ReadsHost
}

// unprotect makes writable what a rule protects. It need not exist.
func (d *Denial) unprotect() policy.Edit {
	e := policy.Edit{Field: "paths.write", Value: d.At, Optional: d.Op != OpWrite && d.Op != OpUnlink}
	if e.Value == "" {
		e.Value = d.Path
	}
	return e
}

// opened is what has to be writable. A file that is there can be on its own;
// whatever makes or takes away a name changes the folder, and a hidden folder has
// nothing in it that could be written.
func (d *Denial) opened() string {
	switch {
	case d.Op == OpWrite:
		return d.Path
	case d.Access == policy.Hidden && d.At != d.Path && d.At != "/" && d.At != "":
		return d.At
	}
	return path.Dir(d.Path)
}

// Narrower returns an edit that allows less than Fix, and is enough if the file or
// folder is made outside first. It is nil where Fix opens no more than what was attempted
// needs. A new name in a home or in a system folder changes that folder, and to open the
// folder is to open all that is in it.
func (d *Denial) Narrower() *policy.Edit {
	if d.Op != OpCreate && d.Op != OpMkdir || d.Access == policy.Hidden {
		return nil
	}
	if !d.wide() && (!d.shared() || d.Outside || d.locked() || d.Protects()) {
		return nil
	}
	return &policy.Edit{Field: "paths.write", Value: d.OnHost(d.Path)}
}

// wide reports whether Fix opens a whole home, or a folder of the system: one with at
// most two names, as /usr/share and, usually, homes are, or one that is the caller's
// home or contains it.
func (d *Denial) wide() bool {
	fix := d.Fix()
	if len(fix) == 0 || fix[0].Field != "paths.write" {
		return false
	}
	folder := fix[0].Value
	return strings.Count(folder, "/") <= 2 || d.home != "" && pathx.Within(folder, d.home)
}

// MarshalJSON adds the edits that would allow it.
func (d Denial) MarshalJSON() ([]byte, error) {
	type plain Denial
	return json.Marshal(struct {
		plain
		Fix      []policy.Edit `json:"fix,omitempty"`
		Narrower *policy.Edit  `json:"fix_if_made_outside,omitempty"`
	}{plain(d), d.Fix(), d.Narrower()})
}

// String returns the denial and its rule as one line with no control characters,
// whatever the names in it are.
func (d *Denial) String() string { return d.Line(Visible(d.Object())) }

// Line is String with other words for the object.
func (d *Denial) Line(object string) string {
	var b strings.Builder
	b.WriteString("denied " + string(d.Op) + " " + object)
	if d.Program != "" {
		b.WriteString(" by " + Visible(d.Program))
	}
	if d.Count > 1 {
		b.WriteString(" (" + strconv.Itoa(d.Count) + " times)")
	}
	b.WriteString(": " + d.Because())
	return b.String()
}

// NoFix says why no option allows it, and what to do instead. It is empty if the
// rule's own reason says so.
func (d *Denial) NoFix() string {
	e, ok := d.pathEdit()
	switch {
	case strings.HasPrefix(d.Rule, "git."):
		return ""
	case d.Rule == RuleNetworkDeny:
		return "to allow it, change or leave out that rule, which no option overrules"
	case d.nameOfLoopback() && d.forwardEdit() != nil:
		return "no option allows it by that name; with its port forwarded it is 127.0.0.1:" + strconv.Itoa(d.Port)
	case !ok:
		return "no option allows it"
	case !d.stands(e.Value):
		return "no single option allows it"
	case d.Origin.Untrusted:
		return "to allow it, change that rule: what a file that is not trusted takes away, no option gives back"
	}
	return "to allow it, change or leave out that rule, which no other option overrules"
}

// Because is the rule that refused, where it comes from and why it is there. A change
// that is refused because no rule allows it names the rule that lets the path be
// read, unless that is the one about all paths.
func (d *Denial) Because() string {
	s := d.Rule
	if d.Subject != "" {
		s += " " + Visible(d.Subject)
	}
	s += " (" + Visible(d.Origin.String())
	if d.Reason != "" {
		s += ", " + Visible(d.Reason)
	}
	s += ")"
	switch {
	case !d.NotWritable():
		return s
	case d.At == "/", d.Origin == ReadsHost:
		return NotWritable
	}
	return NotWritable + ": " + s
}

// NotWritable reports whether a change was refused because no rule lets the path be
// written.
func (d *Denial) NotWritable() bool {
	return !d.network() && d.Op != OpCall && d.Op != OpRead && d.Op != OpExec && d.OnlyReads()
}

// Visible returns a name as it can be shown: quoted, if it could act on a
// terminal.
func Visible(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
