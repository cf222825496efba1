package policy

import "time"

// DefaultLimits returns the values that zero limits stand for. Memory stays
// zero: its default is a share of the machine's, which only a plan knows.
func DefaultLimits() Limits {
	return Limits{
		Time:      time.Hour,
		Output:    64 << 20,
		Processes: 1024,
		OpenFiles: 4096,
		FileSize:  16 << 30,
	}
}

// limitNames are the names of the limits in a file.
var limitNames = []string{"time", "output", "memory", "processes", "open_files", "file_size"}

// A limit is one bound that a document sets.
type limit struct {
	name  string
	value int64
	text  string
}

// list returns the limits that a section sets.
func (s *LimitsSection) list() []limit {
	var out []limit
	if s.Time != nil {
		out = append(out, limit{"time", int64(*s.Time), s.Time.String()})
	}
	for _, e := range []struct {
		name string
		size *Size
	}{{"output", s.Output}, {"memory", s.Memory}, {"file_size", s.FileSize}} {
		if e.size != nil {
			out = append(out, limit{e.name, int64(*e.size), e.size.String()})
		}
	}
	for _, e := range []struct {
		name  string
		count *Count
	}{{"processes", s.Processes}, {"open_files", s.OpenFiles}} {
		if e.count != nil {
			out = append(out, limit{e.name, int64(*e.count), e.count.String()})
		}
	}
	return out
}

// value returns a limit by its name in a file.
func (l Limits) value(name string) int64 {
	switch name {
	case "time":
		return int64(l.Time)
	case "output":
		return l.Output
	case "memory":
		return l.Memory
	case "processes":
		return l.Processes
	case "open_files":
		return l.OpenFiles
	case "file_size":
		return l.FileSize
	}
	panic("policy: no limit is called " + name)
}

// set sets a limit by its name in a file.
func (l *Limits) set(name string, value int64, o Origin) {
	switch name {
	case "time":
		l.Time = time.Duration(value)
	case "output":
		l.Output = value
	case "memory":
		l.Memory = value
	case "processes":
		l.Processes = value
	case "open_files":
		l.OpenFiles = value
	case "file_size":
		l.FileSize = value
	default:
		panic("policy: no limit is called " + name)
	}
	if l.Origin == nil {
		l.Origin = map[string]Origin{}
	}
	l.Origin[name] = o
}

func (m *merger) limits(l Layered) {
	if l.Doc.Limits == nil {
		return
	}
	for _, e := range l.Doc.Limits.list() {
		field := "limits." + e.name
		if l.Untrusted && !m.policy.Limits.tightens(e) {
			if e.value != m.policy.Limits.value(e.name) {
				m.ignore(l, field, field+": "+e.text)
			}
			continue
		}
		m.policy.Limits.set(e.name, e.value, l.origin(field))
	}
}

// tightens reports whether a limit is lower than what holds so far. Which memory the
// default leaves a run only a plan knows, and compares.
func (l Limits) tightens(e limit) bool {
	now := l.value(e.name)
	if now == 0 {
		now = DefaultLimits().value(e.name)
	}
	if now == 0 {
		now = Unlimited
	}
	return e.value > 0 && (now == Unlimited || e.value < now)
}
