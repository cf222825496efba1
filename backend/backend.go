// Package backend is the contract between a plan and the mechanism that enforces it.
//
// A [Backend] turns a plan into a [Launch], which is plain data: which program to start,
// with which arguments and descriptors, and which parts of the plan it does not enforce.
// Backends start, watch and stop nothing; one supervisor does that for all of them.
//
// To add a backend, implement [Backend], put it into a [Registry], and run the conformance
// suite of package backendtest against it.
package backend

import (
	"errors"
	"fmt"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Backend enforces plans. Its methods are safe for concurrent use.
type Backend interface {
	// Name is the name by which a policy chooses the backend.
	Name() string
	// Mounts reports whether the backend can show files that the host does not have, and files
	// at another path. If not, a plan for it contains none of these.
	Mounts() bool
	// Available returns nil if the backend works on this machine, as shown by a
	// live probe; an *UnavailableError if it does not; any other error if that
	// could not be found out.
	Available(*host.Snapshot) error
	// Compile turns a plan into a launch. It is pure. It lists in Gaps every part of the plan
	// that the backend does not enforce.
	Compile(*plan.Plan, *host.Snapshot) (*Launch, error)
}

// An UnavailableError says why a backend cannot be used on this machine.
type UnavailableError struct {
	Backend string
	Probe   host.Probe
}

// Error names the backend, the reason and the fix.
func (e *UnavailableError) Error() string {
	s := fmt.Sprintf("backend %s is not available: %s", e.Backend, e.Probe.Reason)
	if e.Probe.Fix != "" {
		s += " (" + e.Probe.Fix + ")"
	}
	return s
}

// ErrInconclusive is wrapped by the error of a probe that could not find out whether the
// backend works.
var ErrInconclusive = errors.New("inconclusive")

// A Gap is a part of the plan that a backend does not enforce here.
type Gap struct {
	// Rule names the part, in the words of a policy file: "paths.hide",
	// "network.mode", "limits.memory".
	Rule string `json:"rule"`
	// Subject is the path, host or value that the rule is about.
	Subject string `json:"subject,omitempty"`
	// Subjects are all subjects, if Subject names only the first few.
	Subjects []string `json:"-"`
	// Reason says why it is not enforced.
	Reason string `json:"reason"`
	// Fix says what would close the gap.
	Fix string `json:"fix,omitempty"`
	// Optional: the rule is only enforced where the machine can do so. The gap is reported,
	// but even a strict policy runs with it.
	Optional bool          `json:"optional,omitempty"`
	Origin   policy.Origin `json:"origin"`
}

// String returns the gap as one line.
func (g Gap) String() string {
	s := g.Rule
	if g.Subject != "" {
		s += " " + g.Subject
	}
	s += " is not enforced: " + g.Reason
	if g.Fix != "" {
		s += " (" + g.Fix + ")"
	}
	return s
}

// A Launch is what the supervisor starts. A backend of another module sets the fields that are
// listed here, and leaves the embedded ones at zero.
type Launch struct {
	// Backend is the name of the backend that made it.
	Backend string `json:"backend"`
	// Path is the program on the host, absolute; empty is Argv[0]. Argv are its
	// arguments, with Argv[0] the name it is called by.
	Path string   `json:"path"`
	Argv []string `json:"argv"`
	// Env is the environment of that program. It is not nil even if empty: the program does
	// not inherit the caller's environment.
	Env []string `json:"-"`
	// Dir is its working folder on the host.
	Dir string `json:"dir"`
	// Files are its descriptors, numbered from FirstFD.
	Files   []File `json:"files,omitempty"`
	FirstFD int    `json:"first_fd,omitempty"`
	// Confined is false only for the backend "none".
	Confined bool `json:"confined"`
	// Gaps are the parts of the plan that are not enforced.
	Gaps []Gap `json:"gaps,omitempty"`

	builtin.Extras
}

// A FileKind says what a descriptor of a [Launch] is: [Source] or [Data]. The built-in
// backends use further kinds.
type FileKind = builtin.FileKind

// The kinds of descriptor.
const (
	// Source is a path of the host, opened without following any symbolic link
	// and compared with the kind that the plan expects.
	Source = builtin.Source
	// Data is a file whose content is File.Data.
	Data = builtin.Data
)

// A File is one descriptor that the launched program gets.
type File struct {
	Kind FileKind `json:"kind"`
	// Path and Want are for Source: what is opened and what it has to be.
	Path string    `json:"path,omitempty"`
	Want host.Kind `json:"want,omitempty"`
	// Data is the content for Data. It is not in the JSON, because it may contain the
	// environment.
	Data []byte `json:"-"`
	// Origin is the rule behind a Source. The error names it if the path cannot be opened.
	Origin policy.Origin `json:"origin"`
}
