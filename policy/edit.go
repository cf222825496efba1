package policy

import "github.com/cloche-dev/cloche/internal/pathx"

// An Edit is one addition to a policy, and says what would allow a denied operation. The
// command line writes it as an option, a policy file as an entry.
type Edit struct {
	// Field is named as in a policy file: paths.read, paths.write, persist, sockets,
	// network.mode, network.allow, network.forward or presets.
	Field string `json:"field"`
	// Value is the entry: a path, a host, a port, a name. A path is not escaped; Option does
	// that.
	Value string `json:"value"`
	// Optional: the path need not exist.
	Optional bool `json:"optional,omitempty"`
}

// String returns the edit in the words of a policy: "paths.write: /srv/data".
func (e Edit) String() string { return e.Field + ": " + e.Entry() }

// Entry returns the value in the form of a policy file or an option.
func (e Edit) Entry() string {
	entry := e.Value
	switch e.Field {
	case "paths.read", "paths.write", "persist", "sockets":
		entry = pathx.Literal(entry)
	}
	if e.Optional {
		entry = "?" + entry
	}
	return entry
}

// Option returns the edit as an option for [Policy.With]. Presets and modes cannot be added to
// a finished policy: for those the option does nothing.
func (e Edit) Option() Option {
	if e.Field == "network.mode" || e.Field == "presets" {
		return func(*Policy) {}
	}
	return Set(e.Field, e.Entry())
}
