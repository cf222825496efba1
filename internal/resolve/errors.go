package resolve

import (
	"fmt"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/policy"
)

// kindName returns a description of a kind of file.
func kindName(k host.Kind) string {
	if k == hostfs.Dir {
		return "folder"
	}
	return k.String()
}

// A PolicyError is one rule that cannot be used on this machine.
type PolicyError struct {
	Rule   string // for example "paths.write" or "binds"
	Path   string // as written
	Reason string
	Fix    string
	Origin policy.Origin
}

// Error names the rule, its origin, what is wrong and what to do.
func (e *PolicyError) Error() string {
	s := e.Rule
	if e.Path != "" {
		s += fmt.Sprintf(" %q", e.Path)
	}
	if !e.Origin.IsZero() {
		s = e.Origin.String() + ": " + s
	}
	s += ": " + e.Reason
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// A CommandError says that the command cannot be started.
type CommandError struct {
	Name   string
	Reason string
	// NotFound distinguishes a missing command from one that exists and cannot run.
	NotFound bool
}

// Error names the command and the reason.
func (e *CommandError) Error() string { return fmt.Sprintf("%q: %s", e.Name, e.Reason) }
