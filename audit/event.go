// Package audit writes and checks the audit log, the record of what was run, decided and
// denied: one JSON line per event, in one file per day, in a folder that only its owner can
// read.
//
// Each line contains the SHA-256 of the line before it, across files, and a small head file
// contains the number of lines and the hash of the last one. So [Verify] finds lines that were
// changed, removed, inserted or reordered, an end that was cut off, and missing files.
//
// The limit: somebody who owns the files and knows the format can write a whole new chain.
// Confined commands cannot reach these files, so the chain protects against later edits, not
// against a determined owner. For more, keep a copy of [Report].Hash elsewhere from time to
// time: the chain up to that point cannot be rewritten without changing that hash.
//
// Lines are not synced to the disk one by one. After a power failure the last ones may be
// missing; Verify then reports that.
package audit

import (
	"bytes"
	"encoding/json"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cloche-dev/cloche/internal/redact"
)

// A Sink records events. Record may be called by several goroutines at once.
type Sink interface {
	Record(Event) error
}

// The kinds of events. Readers must accept kinds that they do not know.
const (
	Start     = "start"      // a command is about to run
	End       = "end"        // it ended, or could not be started
	Refused   = "refused"    // cloche refused to run a command
	Toggle    = "toggle"     // the sandbox was switched on or off
	Trust     = "trust"      // a policy file was trusted, or no longer is
	Grant     = "grant"      // a grant was made, refused or revoked
	Connected = "connection" // a connection ended, or was refused

	kindRepair = "repair" // the head file was found missing or damaged
)

// An Event is one line of the log. The JSON names are stable: they may grow,
// never change their meaning.
//
// A run writes a Start before the command begins and an End after it, with the same Run. So
// even a run whose End was never written is in the log.
type Event struct {
	// Time is UTC; the sink sets it if it is zero.
	Time time.Time `json:"time"`
	// Seq counts the lines of the log from 1; the sink sets it.
	Seq     uint64 `json:"seq"`
	Kind    string `json:"kind"`
	Run     string `json:"run,omitempty"`
	Version string `json:"version,omitempty"`
	PID     int    `json:"pid,omitempty"`
	// UID is the numeric user id, or -1 on systems without one.
	UID int `json:"uid"`

	// Argv is the command line. It may contain secrets that should not be there. Obvious ones,
	// such as the value of --token, are replaced, and long arguments are cut (Clipped).
	Argv      []string `json:"argv,omitempty"`
	Clipped   bool     `json:"argv_clipped,omitempty"`
	Dir       string   `json:"dir,omitempty"`
	Workspace string   `json:"workspace,omitempty"`

	// Backend is what enforced the policy, Layer how strongly, Gaps what it did not enforce.
	// Confined is false if nothing was enforced.
	Backend  string `json:"backend,omitempty"`
	Confined bool   `json:"confined"`
	Layer    string `json:"layer,omitempty"`
	Gaps     []Gap  `json:"gaps,omitempty"`
	// Denied are the denials while the command ran, at most a hundred. DeniedMore counts those
	// that are not listed.
	Denied     []Denial `json:"denied,omitempty"`
	DeniedMore int      `json:"denied_more,omitempty"`

	// Policy lists the files that the policy was read from.
	Policy  []PolicyFile `json:"policy,omitempty"`
	Network string       `json:"network,omitempty"`
	// Sockets are the host's unix sockets that the command could connect to. Bus says what it
	// could do on the session bus: "enabled" if it had one, and entries such as "talk
	// org.example.App".
	Sockets []string `json:"sockets,omitempty"`
	Bus     []string `json:"bus,omitempty"`
	// Env contains only names. The sinks remove everything from "=" on.
	Env []string `json:"env,omitempty"`

	// ExitCode is nil unless the command ran and ended.
	ExitCode   *int   `json:"exit_code,omitempty"`
	Signal     string `json:"signal,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`
	TimedOut   bool   `json:"timed_out,omitempty"`
	Canceled   bool   `json:"canceled,omitempty"`
	Truncated  bool   `json:"truncated,omitempty"`
	// Exceeded names the limit because of which the run was ended.
	Exceeded string `json:"exceeded,omitempty"`

	// Subject, Access and Verdict describe a decision: a path or host, the access asked for,
	// and "allow" or "deny". Rule is the rule that decided.
	Subject string `json:"subject,omitempty"`
	Access  string `json:"access,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	// RuleSubject is what that rule is about, as written in the policy.
	Rule        string `json:"rule,omitempty"`
	RuleSubject string `json:"rule_subject,omitempty"`
	Reason      string `json:"reason,omitempty"`

	// Connection describes the connection of an event of the kind Connected.
	Connection *Connection `json:"connection,omitempty"`

	Notices []string `json:"notices,omitempty"`
	Error   string   `json:"error,omitempty"`
	// Refusal is the kind of error that prevented the command from running: policy,
	// unavailable, gaps, command, setup or error. Cause is why no backend could be used, if
	// known: userns-sysctl, apparmor, missing and so on.
	Refusal string `json:"refusal,omitempty"`
	Cause   string `json:"cause,omitempty"`

	// Torn is the hash of an unfinished line before this one, whose writer died while writing.
	// PrevFile, in the first line of a file, is the file before. Prev is the hash of the line
	// before, without its newline. The sink sets all three.
	Torn     string `json:"torn,omitempty"`
	PrevFile string `json:"prev_file,omitempty"`
	Prev     string `json:"prev"`
}

// A Denial is an operation that was denied while the command ran.
type Denial struct {
	Op string `json:"op"`
	// Path is the file, or the path of a request. It is empty for other network operations,
	// which have Host, Port, Protocol and Method.
	Path     string `json:"path"`
	Host     string `json:"host,omitempty"`
	Port     int    `json:"port,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Method   string `json:"method,omitempty"`
	// PID, Program and Argv are those of the first process that tried. Argv is redacted and
	// cut like the event's.
	PID     int      `json:"pid,omitempty"`
	Program string   `json:"program,omitempty"`
	Argv    []string `json:"argv,omitempty"`
	Rule    string   `json:"rule"`
	Subject string   `json:"subject,omitempty"`
	// Origin is the origin of the rule.
	Origin string `json:"origin,omitempty"`
	Count  int    `json:"count"`
	// Time is when it first happened.
	Time time.Time `json:"time,omitzero"`
}

// A Connection is the network part of an event about one connection; the event itself has the
// run, the verdict, the rule, the duration and the error. The line is written when the
// connection ends, so it began at the event's time minus its duration. A denied connection has
// a line too, with no bytes.
//
// If Count is not 0, the line stands for that many connections, which have no lines of their
// own because the run had too many. Then only the byte counts and Refused are set.
type Connection struct {
	// Direction is "out" if the command connected to a host, "publish" if somebody outside
	// connected to a server inside, and "forward" if the command connected to a forwarded port
	// of the host.
	Direction string `json:"direction,omitempty"`
	// Protocol is tcp, udp or icmp, unix for a granted abstract socket, or dns for a denied
	// name lookup.
	Protocol string `json:"protocol,omitempty"`
	// Name is the host name that the command asked for, if it used one.
	Name string `json:"name,omitempty"`
	// Address is the address of the other end, or empty if there never was one.
	Address string `json:"address,omitempty"`
	Port    int    `json:"port,omitempty"`
	// Sent is the number of bytes that left the sandbox, Received those that came in.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	// Requests is the number of HTTP requests that were checked one by one.
	Requests int `json:"requests,omitempty"`
	// PID is the process id on the host, Program the process's name, if they are known.
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`

	Count   int `json:"count,omitempty"`
	Refused int `json:"refused,omitempty"`
}

// Host returns the name of the other end, or else its address.
func (c *Connection) Host() string {
	if c.Name != "" {
		return c.Name
	}
	return c.Address
}

// Target returns the host with its port.
func (c *Connection) Target() string {
	if c.Port == 0 {
		return c.Host()
	}
	return net.JoinHostPort(c.Host(), strconv.Itoa(c.Port))
}

// A Gap is a part of the policy that was not enforced.
type Gap struct {
	Rule    string `json:"rule"`
	Subject string `json:"subject,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// A PolicyFile names a policy file and the hash of its content.
type PolicyFile struct {
	Path    string `json:"path"`
	SHA256  string `json:"sha256"`
	Trusted bool   `json:"trusted,omitempty"`
}

// Limits on a command line in the log: enough to recognize it, and small enough that a line
// stays one quick write.
const (
	maxArg  = 4 << 10
	maxArgv = 64 << 10
)

// prepare returns the event in the form that the sinks record.
func (e Event) prepare(now func() time.Time) Event {
	if e.Time.IsZero() {
		e.Time = now()
	}
	e.Time = e.Time.UTC()
	e.Argv, e.Clipped = clip(redact.Argv(e.Argv))
	e.Env = names(e.Env)
	e.Denied = slices.Clone(e.Denied)
	for i := range e.Denied {
		e.Denied[i].Argv, _ = clip(redact.Argv(e.Denied[i].Argv))
	}
	return e
}

// names removes values, so that no mistake of a caller puts them in the log.
func names(env []string) []string {
	out := make([]string, 0, len(env))
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		out = append(out, name)
	}
	return out
}

// clip limits the length of each argument and of all of them.
func clip(argv []string) (out []string, clipped bool) {
	room := maxArgv
	for _, arg := range argv {
		limit := min(maxArg, room)
		if len(arg) > limit {
			arg, clipped = cutAt(arg, limit), true
		}
		if room == 0 {
			return out, true
		}
		room -= len(arg)
		out = append(out, arg)
	}
	return out, clipped
}

// cutAt shortens s to at most n bytes without splitting a character.
func cutAt(s string, n int) string {
	if n >= len(s) {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// encode returns an event as one line without its newline. It does not escape HTML characters,
// because command lines are full of them.
func encode(e Event) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
