package policy

import "github.com/cloche-dev/cloche/internal/pathx"

// An Edit is one addition to a policy. It says what would allow something that was
// denied; the command line writes it as an option, a file as an entry.
type Edit struct {
	Field EditField `json:"field"`
	// Value is the entry: a path, a host, a port, a name. A path stands for itself;
	// Option escapes it for the policy.
	Value string `json:"value"`
	// Optional: the path need not exist.
	Optional bool `json:"optional,omitempty"`
}

// An EditField is a field of a policy, named as in a policy file.
type EditField string

// The fields that an Edit can add to.
const (
	EditRead    EditField = "paths.read"
	EditWrite   EditField = "paths.write"
	EditPersist EditField = "persist"
	EditSocket  EditField = "sockets"
	EditMode    EditField = "network.mode"
	EditAllow   EditField = "network.allow"
	EditForward EditField = "network.forward"
	EditPreset  EditField = "presets"
)

// String returns the edit in the words of a policy: "paths.write: /srv/data".
func (e Edit) String() string { return string(e.Field) + ": " + e.Entry() }

// Entry is the value as a policy file or an option has it.
func (e Edit) Entry() string {
	entry := e.Value
	switch e.Field {
	case EditRead, EditWrite, EditPersist, EditSocket:
		entry = pathx.Literal(entry)
	case EditMode, EditAllow, EditForward, EditPreset:
	}
	if e.Optional {
		entry = "?" + entry
	}
	return entry
}

// Option returns the edit as an option for [Policy.With]. Presets and modes are not
// additions to a finished policy: for those it changes nothing.
func (e Edit) Option() Option {
	switch e.Field {
	case EditRead:
		return AllowRead(e.Entry())
	case EditWrite:
		return AllowWrite(e.Entry())
	case EditPersist:
		return WithPersist(e.Entry())
	case EditSocket:
		return AllowSocket(e.Entry())
	case EditAllow:
		return AllowHosts(e.Entry())
	case EditForward:
		return ForwardPorts(e.Entry())
	case EditMode, EditPreset:
	}
	return func(*Policy) {}
}
