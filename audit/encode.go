package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// encode renders an event as one line without its newline: byte for byte what
// package json makes of it. A process mostly records one run, and its first use
// of that package for a type as large as Event takes longer than all else that
// recording does. Characters of HTML stay as they are: command lines are full of
// them.
func encode(e Event) ([]byte, error) {
	o := object{b: make([]byte, 0, 1024)}
	o.time("time", e.Time)
	o.number("seq", e.Seq)
	o.text("kind", string(e.Kind))
	o.optional("run", e.Run)
	o.optional("version", e.Version)
	o.optionalInt("pid", int64(e.PID))
	o.int("uid", int64(e.UID))
	o.texts("argv", e.Argv)
	o.flag("argv_clipped", e.Clipped)
	o.optional("dir", e.Dir)
	o.optional("workspace", e.Workspace)
	o.optional("backend", e.Backend)
	o.bool("confined", e.Confined)
	o.optional("layer", e.Layer)
	list(&o, "gaps", e.Gaps, Gap.fields)
	list(&o, "denied", e.Denied, Denial.fields)
	o.optionalInt("denied_more", int64(e.DeniedMore))
	list(&o, "policy", e.Policy, PolicyFile.fields)
	o.optional("network", e.Network)
	o.texts("sockets", e.Sockets)
	o.texts("bus", e.Bus)
	o.texts("env", e.Env)
	o.outcome(e)
	o.optional("subject", e.Subject)
	o.optional("access", e.Access)
	o.optional("verdict", e.Verdict)
	o.optional("rule", e.Rule)
	o.optional("rule_subject", e.RuleSubject)
	o.optional("reason", e.Reason)
	if e.Connection != nil {
		o.inner("connection", e.Connection.fields)
	}
	o.texts("notices", e.Notices)
	o.optional("error", e.Error)
	o.optional("refusal", e.Refusal)
	o.optional("cause", e.Cause)
	o.optional("torn", e.Torn)
	o.optional("prev_file", e.PrevFile)
	o.text("prev", e.Prev)
	return append(o.b, '}'), o.err
}

// outcome adds the fields about how a command ended.
func (o *object) outcome(e Event) {
	if e.ExitCode != nil {
		o.int("exit_code", int64(*e.ExitCode))
	}
	o.optional("signal", e.Signal)
	o.optionalInt("duration_ms", e.DurationMS)
	o.flag("timed_out", e.TimedOut)
	o.flag("canceled", e.Canceled)
	o.flag("truncated", e.Truncated)
	o.optional("exceeded", e.Exceeded)
}

func (g Gap) fields(o *object) {
	o.text("rule", g.Rule)
	o.optional("subject", g.Subject)
	o.optional("reason", g.Reason)
}

func (d Denial) fields(o *object) {
	o.text("op", d.Op)
	o.text("path", d.Path)
	o.optional("host", d.Host)
	o.optionalInt("port", int64(d.Port))
	o.optional("protocol", d.Protocol)
	o.optional("method", d.Method)
	o.optionalInt("pid", int64(d.PID))
	o.optional("program", d.Program)
	o.texts("argv", d.Argv)
	o.text("rule", d.Rule)
	o.optional("subject", d.Subject)
	o.optional("origin", d.Origin)
	o.int("count", int64(d.Count))
	if !d.Time.IsZero() {
		o.time("time", d.Time)
	}
}

func (f PolicyFile) fields(o *object) {
	o.text("path", f.Path)
	o.text("sha256", f.SHA256)
	o.flag("trusted", f.Trusted)
}

// An object is a JSON object that is being written; its closing brace comes last.
type object struct {
	b   []byte
	err error
}

func (o *object) name(n string) {
	start := byte(',')
	if len(o.b) == 0 {
		start = '{'
	}
	o.b = append(append(append(o.b, start, '"'), n...), '"', ':')
}

func (o *object) time(n string, t time.Time) {
	o.name(n)
	o.b = append(o.b, '"')
	o.b, o.err = t.AppendText(o.b)
	o.b = append(o.b, '"')
}

func (o *object) number(n string, v uint64) { o.name(n); o.b = strconv.AppendUint(o.b, v, 10) }
func (o *object) int(n string, v int64)     { o.name(n); o.b = strconv.AppendInt(o.b, v, 10) }
func (o *object) bool(n string, v bool)     { o.name(n); o.b = strconv.AppendBool(o.b, v) }
func (o *object) text(n, v string)          { o.name(n); o.b = appendText(o.b, v) }

// The fields below are left out where they say nothing.

func (o *object) optional(n, v string) {
	if v != "" {
		o.text(n, v)
	}
}

func (o *object) optionalInt(n string, v int64) {
	if v != 0 {
		o.int(n, v)
	}
}

func (o *object) flag(n string, v bool) {
	if v {
		o.bool(n, v)
	}
}

func (o *object) texts(n string, list []string) {
	if len(list) == 0 {
		return
	}
	o.name(n)
	for i, v := range list {
		o.b = appendText(append(o.b, separator(i)), v)
	}
	o.b = append(o.b, ']')
}

func separator(i int) byte {
	if i == 0 {
		return '['
	}
	return ','
}

func list[T any](o *object, n string, all []T, fields func(T, *object)) {
	if len(all) == 0 {
		return
	}
	o.name(n)
	for i, v := range all {
		inner := object{}
		fields(v, &inner)
		o.err = errors.Join(o.err, inner.err)
		o.b = append(append(append(o.b, separator(i)), inner.b...), '}')
	}
	o.b = append(o.b, ']')
}

func (o *object) inner(n string, fields func(*object)) {
	inner := object{}
	fields(&inner)
	o.name(n)
	o.b = append(append(o.b, inner.b...), '}')
}

// appendText appends a string. Only what is plain ASCII is written here; package
// json knows how to escape the rest.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return appendEscaped(b, s)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func appendEscaped(b []byte, s string) []byte {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always can be
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}
