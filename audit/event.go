// Package audit keeps the record of what was run, decided and refused: one JSON
// line per event, in one file per day, in a folder that only its owner can
// read.
//
// Each line carries the SHA-256 of the line before it, across files, and a
// small head file carries the count and the hash of the last line. [Verify]
// therefore finds lines that were changed, removed, inserted or reordered, a
// tail that was cut off, and files that are gone.
//
// The limit: whoever owns the files and knows the scheme can write a whole new
// chain. What a confined command can reach is not among those files, so this
// guards against later tidying, not against the owner. For more, keep a copy of
// [Report].Hash elsewhere from time to time: the chain cannot be rewritten
// before that point without losing that hash.
//
// Lines are not synced to the disk one by one. After a power failure the last
// ones may be missing, which Verify then reports.
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

// A Sink keeps events. Record may be called by many goroutines at once.
type Sink interface {
	Record(Event) error
}

// The kinds of events. Readers must accept kinds that they do not know.
const (
	Start     = "start"      // a command is about to run
	End       = "end"        // it ended, or could not be started
	Refused   = "refused"    // cloche would not run a command
	Toggle    = "toggle"     // the sandbox was switched on or off
	Trust     = "trust"      // a policy file was trusted, or no longer is
	Grant     = "grant"      // a grant was made, refused or revoked
	Connected = "connection" // a connection ended, or was refused

	kindRepair = "repair" // the log found its head file missing or damaged
)

// An Event is one line of the log. The JSON names are stable: they may grow,
// never change their meaning.
//
// A run writes a Start before the command begins and an End after it, with the
// same Run, so that a run whose end was never written still left its trace.
type Event struct {
	// Time is UTC; the sink sets it if it is zero.
	Time time.Time `json:"time"`
	// Seq counts the lines of the log from 1; the sink sets it.
	Seq     uint64 `json:"seq"`
	Kind    string `json:"kind"`
	Run     string `json:"run,omitempty"`
	Version string `json:"version,omitempty"`
	PID     int    `json:"pid,omitempty"`
	// UID is the numeric user, -1 where the system has none.
	UID int `json:"uid"`

	// Argv is the command line. It may hold secrets that their owner should not
	// have put there; the obvious ones are replaced (the values of flags such as --token) and long ones
	// are cut (Clipped).
	Argv      []string `json:"argv,omitempty"`
	Clipped   bool     `json:"argv_clipped,omitempty"`
	Dir       string   `json:"dir,omitempty"`
	Workspace string   `json:"workspace,omitempty"`

	// Backend is what enforced the policy, Layer how strongly, Gaps what was not
	// enforced. Confined is false if nothing was.
	Backend  string `json:"backend,omitempty"`
	Confined bool   `json:"confined"`
	Layer    string `json:"layer,omitempty"`
	Gaps     []Gap  `json:"gaps,omitempty"`
	// Denied is what was refused while the command ran; a hundred are kept.
	// DeniedMore is how many refusals there were beside those.
	Denied     []Denial `json:"denied,omitempty"`
	DeniedMore int      `json:"denied_more,omitempty"`

	// Policy lists the files that the policy was read from.
	Policy  []PolicyFile `json:"policy,omitempty"`
	Network string       `json:"network,omitempty"`
	// Sockets are the host's unix sockets that the command could connect to. Bus is
	// "enabled" where it had a session bus, and what it could do there:
	// "talk org.example.App".
	Sockets []string `json:"sockets,omitempty"`
	Bus     []string `json:"bus,omitempty"`
	// Env holds names only. The sinks cut off anything from "=" on.
	Env []string `json:"env,omitempty"`

	// ExitCode is nil unless the command ran and ended.
	ExitCode   *int   `json:"exit_code,omitempty"`
	Signal     string `json:"signal,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`
	TimedOut   bool   `json:"timed_out,omitempty"`
	Canceled   bool   `json:"canceled,omitempty"`
	Truncated  bool   `json:"truncated,omitempty"`
	// Exceeded names the limit for which the run was ended.
	Exceeded string `json:"exceeded,omitempty"`

	// Subject, Access and Verdict say what a decision was about: a path or host,
	// the access asked for, and "allow" or "deny". Rule is what decided.
	Subject string `json:"subject,omitempty"`
	Access  string `json:"access,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	// RuleSubject is what that rule is about, as a policy says it.
	Rule        string `json:"rule,omitempty"`
	RuleSubject string `json:"rule_subject,omitempty"`
	Reason      string `json:"reason,omitempty"`

	// Connection is what an event of the kind Connected is about.
	Connection *Connection `json:"connection,omitempty"`

	Notices []string `json:"notices,omitempty"`
	Error   string   `json:"error,omitempty"`
	// Refusal is the kind of error that kept the command from running: policy,
	// unavailable, gaps, command, setup or error. Cause is why no backend could be used,
	// where that is known: userns-sysctl, apparmor, missing and so on.
	Refusal string `json:"refusal,omitempty"`
	Cause   string `json:"cause,omitempty"`

	// Torn is the hash of an unfinished line that stands before this one: its
	// writer died in the middle. PrevFile is the file before this one, in the
	// first line of a file. The sink sets both, and Prev, the hash of the line
	// before without its newline.
	Torn     string `json:"torn,omitempty"`
	PrevFile string `json:"prev_file,omitempty"`
	Prev     string `json:"prev"`
}

// A Denial is what was refused to the command while it ran.
type Denial struct {
	Op string `json:"op"`
	// Path is the file, or the path of a request; it is empty for the rest of the
	// network, which has Host, Port, Protocol and Method.
	Path     string `json:"path"`
	Host     string `json:"host,omitempty"`
	Port     int    `json:"port,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Method   string `json:"method,omitempty"`
	// PID, Program and Argv are of the first process that tried. Argv is kept as the
	// event's own is.
	PID     int      `json:"pid,omitempty"`
	Program string   `json:"program,omitempty"`
	Argv    []string `json:"argv,omitempty"`
	Rule    string   `json:"rule"`
	Subject string   `json:"subject,omitempty"`
	// Origin is where the rule comes from.
	Origin string `json:"origin,omitempty"`
	Count  int    `json:"count"`
	// Time is when it first happened.
	Time time.Time `json:"time,omitzero"`
}

// A Connection is one connection of a command, with the network's side of its
// event: the event itself has the run, the verdict, the rule, the duration and
// the error. Its line is written when the connection ends, so the time of the
// event less its duration is when it began. One that was refused has a line
// too, with no bytes.
//
// A line whose Count is not 0 stands for that many connections, which had no
// line of their own because the run had so many. Only the bytes and Refused are
// set beside it.
type Connection struct {
	// Direction is "out" if the command connected to a host, "publish" if somebody outside
	// connected to a server inside, and "forward" if the command connected to a forwarded
	// port of the host.
	Direction string `json:"direction,omitempty"`
	// Protocol is tcp, udp or icmp, or dns for a name that was not looked up.
	Protocol string `json:"protocol,omitempty"`
	// Name is the host by the name that the command asked for, where it did.
	Name string `json:"name,omitempty"`
	// Address is the other end. It is empty where it never came to one.
	Address string `json:"address,omitempty"`
	Port    int    `json:"port,omitempty"`
	// Sent is what left the sandbox, Received what came in, in bytes.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	// Requests is how many HTTP requests were judged one by one.
	Requests int `json:"requests,omitempty"`
	// PID is the process inside as the host numbers it, Program the name it ran
	// under, as far as they could be found out.
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`

	Count   int `json:"count,omitempty"`
	Refused int `json:"refused,omitempty"`
}

// Host is the other end as a person knows it: the name, or else the address.
func (c *Connection) Host() string {
	if c.Name != "" {
		return c.Name
	}
	return c.Address
}

// Target is the host with its port.
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

// A PolicyFile names a policy file and what it held.
type PolicyFile struct {
	Path    string `json:"path"`
	SHA256  string `json:"sha256"`
	Trusted bool   `json:"trusted,omitempty"`
}

// Limits on a command line in the log: enough to know it again, little enough
// that one line stays one quick write.
const (
	maxArg  = 4 << 10
	maxArgv = 64 << 10
)

// prepare returns the event as the sinks keep it.
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

// names cuts values off, so that no caller's mistake puts them in the log.
func names(env []string) []string {
	out := make([]string, 0, len(env))
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		out = append(out, name)
	}
	return out
}

// clip bounds each argument and all of them.
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

// encode renders an event as one line without its newline. Characters of HTML stay as they
// are: command lines are full of them.
func encode(e Event) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
