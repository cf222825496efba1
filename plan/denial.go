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
	// Of the network.
	OpConnect Op = "connect" // a connection, a datagram or a ping
	OpResolve Op = "resolve" // a name that is looked up
	OpRequest Op = "request" // a request of plain HTTP
)

// A Denial is one refused attempt, or several equal ones.
type Denial struct {
	Op Op `json:"op"`
	// Path is the file as seen inside, with symbolic links resolved, or the path of
	// a request.
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
	// try reports whether an option opens it, nil if nobody can tell.
	try func(d *Denial, flag, path string) bool
}

// Try has Grant suggest only options of which try says that they open what was
// attempted. It is asked for each call of Grant, so it should remember.
func (d *Denial) Try(try func(d *Denial, flag, path string) bool) { d.try = try }

// Of notes which plan the refusal is by.
func (d *Denial) Of(p *Plan) {
	d.home = p.Home
	if p.Inside != p.Workspace {
		d.inside, d.host = p.Inside, p.Workspace
	}
}

// named is a path as an option names it.
func (d *Denial) named(path string) string {
	bare, optional := strings.CutPrefix(path, "?")
	if d.inside == "" || !pathx.Within(d.inside, bare) {
		return path
	}
	if bare = pathx.Rebase(d.inside, d.host, bare); optional {
		return "?" + bare
	}
	return bare
}

// Grant is the option of `cloche run` that would allow it, or empty where no
// option does.
func (d *Denial) Grant() string {
	if flag, path := d.pathGrant(); path != "" && (d.stands(path) || !d.helps(flag, path)) {
		return ""
	}
	return d.Request()
}

// helps reports whether an option is known to open it, or nobody can tell.
func (d *Denial) helps(flag, path string) bool {
	return d.try == nil || d.Outside || d.try(d, flag, pathx.Literal(d.named(path)))
}

// Request is what to ask a person for, written like Grant, or empty where nothing a
// person grants would allow it. What is granted overrules the options that a session
// began with, and what a file that is not trusted takes away.
func (d *Denial) Request() string {
	if d.network() {
		return d.netGrant()
	}
	switch {
	case d.Outside, d.Rule == RuleSockets && d.At == "":
		return ""
	case d.Rule == RuleSockets:
		return "--socket " + shellWord(pathx.Literal(d.At))
	}
	flag, path := d.pathGrant()
	if path == "" {
		return ""
	}
	return flag + " " + shellWord(pathx.Literal(d.named(path)))
}

// pathGrant is the flag and the path that open what was attempted, as far as it is
// for an option to do so.
func (d *Denial) pathGrant() (flag, path string) {
	switch {
	case d.network(), d.Rule == RuleSockets, strings.HasPrefix(d.Rule, "git."), d.locked():
		return "", ""
	case d.Op == OpRead, d.Op == OpExec:
		return "--ro", d.Path
	case d.Protects():
		return "--rw", d.protected()
	case d.shared() && d.Op == OpMkdir:
		return "--persist", d.Path
	case d.shared():
		return "", ""
	}
	if path := d.opened(); path != "/" {
		return "--rw", path
	}
	return "", ""
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
	rest, in := strings.CutPrefix(path.Dir(d.named(d.Path)), d.home)
	return in && slices.Contains(sharedFolders, rest)
}

// stands reports whether the rule holds against an option for the path. One that an
// option or the program itself gave is no weaker than another option: the same path
// twice gives the stricter, and a pattern holds against a path. A file that is not
// trusted takes away whatever is said elsewhere about the same path.
func (d *Denial) stands(path string) bool {
	same := strings.TrimPrefix(path, "?") == d.At
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

// protected is the path that a rule protects, as an option names it. It need not
// exist.
func (d *Denial) protected() string {
	path := d.At
	if path == "" {
		path = d.Path
	}
	if d.Op == OpWrite || d.Op == OpUnlink {
		return path
	}
	return "?" + path
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

// Narrower is an option that allows less than Grant, and is enough if the file or
// folder is made outside first; empty where Grant is about no more than what was
// attempted needs. A new name in a home or a folder of the system changes that
// folder, and to open it is to open all that is in it.
func (d *Denial) Narrower() string {
	if d.Op != OpCreate && d.Op != OpMkdir || d.Access == policy.Hidden {
		return ""
	}
	if !d.wide() && (!d.shared() || d.Outside || d.locked() || d.Protects()) {
		return ""
	}
	return "--rw " + shellWord(pathx.Literal(d.named(d.Path)))
}

// wide reports whether Grant opens a whole home, or a folder of the system: one with
// at most two names, as /usr/share and, usually, homes are, or one that the caller's
// home is or lies in, wherever it is.
func (d *Denial) wide() bool {
	flag, folder := d.pathGrant()
	if flag != "--rw" || d.Grant() == "" {
		return false
	}
	folder = strings.TrimPrefix(d.named(folder), "?")
	return strings.Count(folder, "/") <= 2 || d.home != "" && pathx.Within(folder, d.home)
}

// MarshalJSON adds the options that would allow it.
func (d Denial) MarshalJSON() ([]byte, error) {
	type plain Denial
	return json.Marshal(struct {
		plain
		Grant    string `json:"grant,omitempty"`
		Narrower string `json:"grant_if_made_outside,omitempty"`
	}{plain(d), d.Grant(), d.Narrower()})
}

// String returns the denial as one line with no control characters, whatever
// the names in it are.
func (d *Denial) String() string { return d.Line(Visible(d.Object()), d.Grant()) + d.Remark() }

// Line is the denial as one line, about an object in words and with the option
// that allows it, if any.
func (d *Denial) Line(object, grant string) string {
	var b strings.Builder
	b.WriteString("denied " + string(d.Op) + " " + object)
	if d.Program != "" {
		b.WriteString(" by " + Visible(d.Program))
	}
	if d.Count > 1 {
		b.WriteString(" (" + strconv.Itoa(d.Count) + " times)")
	}
	b.WriteString(": " + d.Because())
	if grant != "" {
		b.WriteString("; allow it with " + grant)
	}
	return b.String()
}

// Remark is what has to be said about the option beside it, empty or beginning
// with a semicolon.
func (d *Denial) Remark() string {
	switch narrow := d.Narrower(); {
	case d.Outside:
		return "; outside the sandbox the system refuses it, too"
	case d.Grant() == "" && narrow != "":
		return "; make it outside first, then " + narrow + " allows it"
	case d.Grant() == "":
		return d.change()
	case d.shared() && d.Op == OpMkdir && narrow != "":
		return ", a folder of the sandbox's own; if it is made outside first, " + narrow + " opens that one"
	case d.shared() && d.Op == OpMkdir:
		return ", a folder of the sandbox's own"
	case narrow != "":
		return ", which opens all of that folder; if it is made outside first, " + narrow + " is enough"
	}
	return ""
}

// change says that no option allows it, and where to allow it instead: a rule of the
// user's or of the project's own may stand against options.
func (d *Denial) change() string {
	switch _, path := d.pathGrant(); {
	case strings.HasPrefix(d.Rule, "git."):
		return "" // its reason says what to do
	case d.Rule == RuleNetworkDeny:
		return "; to allow it, change or leave out that rule, which no option overrules"
	case path == "":
		return "; no option allows it"
	case !d.stands(path):
		return "; no single option allows it"
	case d.Origin.Untrusted:
		return "; to allow it, change that rule: what a file that is not trusted takes away, no option gives back"
	}
	return "; to allow it, change or leave out that rule, which no other option overrules"
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
	return !d.network() && d.Op != OpRead && d.Op != OpExec && d.OnlyReads()
}

// Visible returns a name as it can be shown: quoted, if it could act on a
// terminal.
func Visible(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// shellWord is a path as it has to be typed.
func shellWord(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+=:@%,~", r)
	}
	if strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	if Visible(s) != s {
		return "$'" + strings.ReplaceAll(strings.Trim(strconv.QuoteToASCII(s), `"`), "'", `\'`) + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
