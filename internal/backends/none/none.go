// Package none runs commands without a sandbox: for tests, and for a person who asks for it by
// name. Every result says so.
package none

import (
	"fmt"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/plan"
)

// Name is the backend's name in policies.
const Name = "none"

// Backend runs commands unconfined.
type Backend struct{}

// New returns the backend.
func New() *Backend { return &Backend{} }

// Name implements backend.Backend.
func (*Backend) Name() string { return Name }

// Mounts implements backend.Backend.
func (*Backend) Mounts() bool { return false }

// Available implements backend.Backend. It always works.
func (*Backend) Available(*host.Snapshot) error { return nil }

// Compile implements backend.Backend. The plan's environment and its limits on time and output
// still apply, and on Linux those on memory and processes: the supervisor enforces them.
func (*Backend) Compile(p *plan.Plan, _ *host.Snapshot) (*backend.Launch, error) {
	if p.Command == nil {
		return nil, fmt.Errorf("backend %s: the plan has no command", Name)
	}
	l := &backend.Launch{Backend: Name, Argv: p.Command.Args, Env: p.Environ(), FirstFD: 3 + p.Command.ExtraFiles}
	var ok bool
	if l.Path, ok = p.HostPath(p.Command.Path); !ok {
		l.Path = p.Command.Path
	}
	if l.Dir, ok = p.HostPath(p.Command.Dir); !ok {
		l.Dir = p.Command.Dir
	}
	l.Gaps = []backend.Gap{
		{Rule: "paths", Reason: "the backend none confines nothing", Fix: "use another backend"},
		{Rule: "network.mode", Subject: p.Network.Mode.String(), Reason: "the backend none confines nothing", Origin: p.Network.Origin},
		{Rule: "sockets", Reason: "the backend none confines nothing"},
		{Rule: "limits.processes", Reason: "the backend none confines nothing"},
		{Rule: "limits.open_files", Reason: "the backend none confines nothing"},
		{Rule: "limits.file_size", Reason: "the backend none confines nothing"},
	}
	return l, nil
}
