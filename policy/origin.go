package policy

import "strconv"

// A Layer says how specific the source of a rule is. For the same path or the
// same single-valued field the higher layer wins; within one layer the
// stricter rule wins.
type Layer int

// The layers, lowest first.
const (
	LayerBuiltin Layer = iota // cloche's own baseline
	LayerPreset               // a preset that ships with cloche
	LayerTool                 // a preset for one toolchain or agent, see [PresetKind]
	LayerUser                 // the user's policy file
	LayerProject              // the project's policy file
	LayerKept                 // access that a person granted before, for longer than a session
	LayerCommand              // flags, --policy, an editor's document, a policy built in Go
	LayerGrant                // access that a person granted in this session
	LayerSession              // the run-time toggle
)

var layerNames = []string{"builtin", "preset", "tool", "user", "project", "kept", "command", "grant", "session"}

// Granted reports whether the layer's rules were granted by a person.
func (l Layer) Granted() bool { return l == LayerKept || l == LayerGrant }

func (l Layer) String() string                { return enumString(layerNames, l) }
func (l Layer) MarshalText() ([]byte, error)  { return enumText(layerNames, l) }
func (l *Layer) UnmarshalText(b []byte) error { return enumParse(layerNames, b, l) }

// An Origin says where a rule comes from. Every line of a plan, every denial and every error
// names one.
type Origin struct {
	Layer Layer `json:"layer"`
	// Source is a file's path, "preset NAME", a flag as typed, or a few words
	// for a built-in rule.
	Source string `json:"source,omitempty"`
	// Line and Column are set, counted from 1, where Source is a file or a preset.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Untrusted marks a rule of a project file whose content the user has not
	// trusted: it may tighten the policy and never loosen it.
	Untrusted bool `json:"untrusted,omitempty"`
}

// String returns the origin as a person would point at it, for example
// "/home/ana/project/.cloche.yaml:12" or "preset workspace:3".
func (o Origin) String() string {
	if o.Line <= 0 {
		return o.name()
	}
	return o.name() + ":" + strconv.Itoa(o.Line)
}

// Append appends the String form without allocating, for texts with hundreds of rules.
func (o Origin) Append(b []byte) []byte {
	b = append(b, o.name()...)
	if o.Line > 0 {
		b = strconv.AppendInt(append(b, ':'), int64(o.Line), 10)
	}
	return b
}

func (o Origin) name() string {
	if o.Source == "" {
		return o.Layer.String()
	}
	return o.Source
}

// IsZero reports whether o is empty.
func (o Origin) IsZero() bool { return o == Origin{} }
