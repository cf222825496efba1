package backend

import (
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/plan"
)

// Sharing is how much the commands of a warm session share with each other.
type Sharing int

// The ways of sharing.
const (
	// Apart: each command has processes, /proc, IPC objects and temporary folders
	// of its own. The network namespace and the layout of files are shared.
	Apart Sharing = iota
	// Together: commands share those as well, and see and signal each other.
	Together
)

// A Warmer is a backend that can make a sandbox once and run many commands in
// it. The sandbox that waits for commands is called parked.
type Warmer interface {
	Backend
	// Park compiles a plan, with or without a command, into the launch of a
	// parked sandbox: the namespaces of Launch.Holds with everything laid out in
	// them. It is pure.
	Park(*plan.Plan, *host.Snapshot, Sharing) (*Launch, error)
	// Enter compiles the launch of one command in a parked sandbox that was
	// compiled from the same plan but for its command and environment. It is
	// pure. like, unless nil, is an earlier launch of a command with as many
	// extra files and as much of a terminal; the program of that one serves again.
	Enter(p *plan.Plan, s *host.Snapshot, how Sharing, like *Launch) (*Launch, error)
}
