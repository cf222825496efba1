package policy

import (
	"fmt"
	"strings"
)

// Access is what a command may do with a path. The zero value is the strictest.
type Access int

// The kinds of access, strictest first, so that they compare with <.
const (
	Hidden Access = iota // neither read nor written
	Read                 // read and executed
	Write                // read, executed, written
)

// Reads is the baseline of what can be read.
type Reads int

// The baselines.
const (
	ReadsSystem Reads = iota // the system folders, and what is granted
	ReadsHost                // everything but what is hidden
)

// NetworkMode is how much of the network there is, strictest first.
type NetworkMode int

// The network modes.
const (
	NetworkNone     NetworkMode = iota // nothing outside the sandbox
	NetworkLoopback                    // a private loopback that is up, nothing outside
	NetworkUser                        // a user-mode network, with rules for hosts
	NetworkHost                        // the host's own network
)

// EnvMode is which variables of the caller pass.
type EnvMode int

// The environment modes, strictest first.
const (
	EnvList     EnvMode = iota // only what Pass names
	EnvScrubbed                // the usual ones (HOME, PATH, LANG, TERM …), those that name certificates, and what Pass names
	EnvInherit                 // everything but the denylist
)

// Tmp says which /tmp the command sees.
type Tmp int

// The kinds of /tmp.
const (
	TmpPrivate Tmp = iota // empty, deleted after the command
	TmpShared             // the host's
)

// Strength says what happens if a rule cannot be enforced on this machine.
type Strength int

// The strengths.
const (
	Strict     Strength = iota // refuse to run
	BestEffort                 // run, and report each gap
)

// Recording says which denials are recorded, on backends that can do so. It does not
// change what is denied.
type Recording int

// The recordings.
const (
	// RecordUsual: every denied change, and reads of hidden files by the system calls
	// that most programs use. Programs that walk directories are not slowed down.
	RecordUsual Recording = iota
	// RecordThorough: every denied change and read. Each open is slower.
	RecordThorough
	// RecordChanges: denied changes, and no reads.
	RecordChanges
)

// Fallback says what happens if no backend works.
type Fallback int

// The fallbacks.
const (
	FallbackRefuse Fallback = iota // refuse to run
	FallbackWarn                   // run unconfined, labelled and audited
)

var (
	accessNames   = []string{"hidden", "read", "write"}
	readsNames    = []string{"system", "host"}
	networkNames  = []string{"none", "loopback", "user", "host"}
	envModeNames  = []string{"list", "scrubbed", "inherit"}
	tmpNames      = []string{"private", "shared"}
	strengthNames = []string{"strict", "best-effort"}
	recordNames   = []string{"usual", "thorough", "changes"}
	fallbackNames = []string{"refuse", "warn"}
)

func enumText[T ~int](names []string, v T) ([]byte, error) {
	if v < 0 || int(v) >= len(names) {
		return nil, fmt.Errorf("unknown value %d (known: %s)", int(v), strings.Join(names, ", "))
	}
	return []byte(names[v]), nil
}

func enumString[T ~int](names []string, v T) string {
	if v < 0 || int(v) >= len(names) {
		return fmt.Sprintf("invalid(%d)", int(v))
	}
	return names[v]
}

func enumParse[T ~int](names []string, b []byte, v *T) error {
	for i, n := range names {
		if n == string(b) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("%q is not one of %s", b, strings.Join(names, ", "))
}

// The String, MarshalText and UnmarshalText methods use the names of policy files.

func (a Access) String() string                { return enumString(accessNames, a) }
func (a Access) MarshalText() ([]byte, error)  { return enumText(accessNames, a) }
func (a *Access) UnmarshalText(b []byte) error { return enumParse(accessNames, b, a) }

func (r Reads) String() string                { return enumString(readsNames, r) }
func (r Reads) MarshalText() ([]byte, error)  { return enumText(readsNames, r) }
func (r *Reads) UnmarshalText(b []byte) error { return enumParse(readsNames, b, r) }

func (m NetworkMode) String() string                { return enumString(networkNames, m) }
func (m NetworkMode) MarshalText() ([]byte, error)  { return enumText(networkNames, m) }
func (m *NetworkMode) UnmarshalText(b []byte) error { return enumParse(networkNames, b, m) }

func (m EnvMode) String() string                { return enumString(envModeNames, m) }
func (m EnvMode) MarshalText() ([]byte, error)  { return enumText(envModeNames, m) }
func (m *EnvMode) UnmarshalText(b []byte) error { return enumParse(envModeNames, b, m) }

func (t Tmp) String() string                { return enumString(tmpNames, t) }
func (t Tmp) MarshalText() ([]byte, error)  { return enumText(tmpNames, t) }
func (t *Tmp) UnmarshalText(b []byte) error { return enumParse(tmpNames, b, t) }

func (r Recording) String() string                { return enumString(recordNames, r) }
func (r Recording) MarshalText() ([]byte, error)  { return enumText(recordNames, r) }
func (r *Recording) UnmarshalText(b []byte) error { return enumParse(recordNames, b, r) }

func (s Strength) String() string                { return enumString(strengthNames, s) }
func (s Strength) MarshalText() ([]byte, error)  { return enumText(strengthNames, s) }
func (s *Strength) UnmarshalText(b []byte) error { return enumParse(strengthNames, b, s) }

func (f Fallback) String() string                { return enumString(fallbackNames, f) }
func (f Fallback) MarshalText() ([]byte, error)  { return enumText(fallbackNames, f) }
func (f *Fallback) UnmarshalText(b []byte) error { return enumParse(fallbackNames, b, f) }
