package plan

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

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
	// Pid is the process as the host numbers it, Program the name it runs under.
	Pid     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`
	// Verdict has the rule that refused.
	Verdict
	// Count is how often that happened.
	Count int `json:"count"`
}

// Grant is the option of `cloche run` that would allow it, or empty where no
// option does.
func (d *Denial) Grant() string {
	if d.network() {
		return d.netGrant()
	}
	if strings.HasPrefix(d.Rule, "git.") {
		return ""
	}
	flag := "--rw "
	if d.Op == OpRead {
		flag = "--ro "
	}
	path := d.At
	if d.Access == policy.Read && !strings.HasPrefix(d.Rule, "paths.protect") || path == "/" || path == "" {
		path = d.Path
	}
	if d.Op == OpRead || d.Op == OpWrite || d.Op == OpUnlink || !strings.HasPrefix(d.Rule, "paths.protect") {
		return flag + shellWord(path)
	}
	return flag + shellWord("?"+path) // it need not exist
}

// String returns the denial as one line with no control characters, whatever
// the names in it are.
func (d *Denial) String() string {
	var b strings.Builder
	b.WriteString("denied " + string(d.Op) + " " + visible(d.object()))
	if d.Program != "" {
		b.WriteString(" by " + visible(d.Program))
	}
	if d.Count > 1 {
		b.WriteString(" (" + strconv.Itoa(d.Count) + " times)")
	}
	b.WriteString(": " + d.Rule)
	if d.Subject != "" {
		b.WriteString(" " + visible(d.Subject))
	}
	b.WriteString(" (" + visible(d.Origin.String()))
	if d.Reason != "" {
		b.WriteString(", " + visible(d.Reason))
	}
	b.WriteString(")")
	if g := d.Grant(); g != "" {
		b.WriteString("; allow it with " + g)
	}
	return b.String()
}

// visible keeps a name from acting on a terminal.
func visible(s string) string {
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
	if visible(s) != s {
		return "$'" + strings.ReplaceAll(strings.Trim(strconv.QuoteToASCII(s), `"`), "'", `\'`) + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
