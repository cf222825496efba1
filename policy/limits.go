package policy

import (
	"cmp"
	"maps"
	"time"
)

// DefaultLimits returns the values that zero limits stand for. Memory stays zero: its default
// is a share of the machine's memory, which is only known when a plan is made.
func DefaultLimits() Limits {
	return Limits{
		Time:      time.Hour,
		Output:    64 << 20,
		Processes: 1024,
		OpenFiles: 4096,
		FileSize:  16 << 30,
	}
}

// FormatLimit returns the value of a limit in the form of a policy file: "10m", "4GiB",
// "1024" or "unlimited". The name is that of a policy file, for example "open_files".
func FormatLimit(name string, value int64) string {
	switch name {
	case "time":
		return duration(value).String()
	case "processes", "open_files":
		return count(value).String()
	}
	return size(value).String()
}

// limitNames are the names of the limits in a file.
var limitNames = []string{"time", "output", "memory", "processes", "open_files", "file_size"}

// set returns the limits that a section sets, by their names.
func (s *limitsSection) set() map[string]*int64 {
	if s == nil {
		return nil
	}
	all := map[string]*int64{
		"time": (*int64)(s.Time), "output": (*int64)(s.Output), "memory": (*int64)(s.Memory),
		"processes": (*int64)(s.Processes), "open_files": (*int64)(s.OpenFiles), "file_size": (*int64)(s.FileSize),
	}
	maps.DeleteFunc(all, func(_ string, value *int64) bool { return value == nil })
	return all
}

// field returns the place of a limit by its name in a file.
func (l *Limits) field(name string) *int64 {
	switch name {
	case "time":
		return (*int64)(&l.Time)
	case "output":
		return &l.Output
	case "memory":
		return &l.Memory
	case "processes":
		return &l.Processes
	case "open_files":
		return &l.OpenFiles
	case "file_size":
		return &l.FileSize
	}
	panic("policy: no limit is called " + name)
}

// value returns a limit by its name in a file.
func (l Limits) value(name string) int64 { return *l.field(name) }

// set sets a limit by its name in a file.
func (l *Limits) set(name string, value int64, o Origin) {
	*l.field(name) = value
	if l.Origin == nil {
		l.Origin = map[string]Origin{}
	}
	l.Origin[name] = o
}

func (m *merger) limits(l layered) {
	values := l.doc.Limits.set()
	for _, name := range limitNames {
		if values[name] == nil {
			continue
		}
		value := *values[name]
		field, now := "limits."+name, m.policy.Limits.value(name)
		switch {
		case !l.untrusted || m.policy.Limits.tightens(name, value):
			m.policy.Limits.set(name, value, l.origin(field))
		case value != now:
			m.ignore(l, l.origin(field), field+": "+FormatLimit(name, value))
		}
	}
}

// tightens reports whether a value is lower than the limit so far. The default for memory is
// only known when a plan is made, and compared there.
func (l Limits) tightens(name string, value int64) bool {
	now := cmp.Or(l.value(name), DefaultLimits().value(name), Unlimited)
	return value > 0 && (now == Unlimited || value < now)
}
