// Package bus runs the proxy through which a sandbox sees the user's session
// bus: xdg-dbus-proxy, which Flatpak's sandboxes have, too. Whoever can talk to
// the bus itself can have systemd start any program outside, so that its own
// socket is never shown.
//
// The proxy is a process of the user's, outside of the sandbox, that listens on a
// socket in a folder which only the user can enter. The sandbox mounts the socket;
// after that, socket and folder are removed, and nothing is left that could stay
// behind. If this process is killed before, another one removes them. The proxy ends
// when the pipe breaks whose other end this process has, however that ends.
//
// Where the proxy listens is decided for each run and put into the plan before it is
// compiled (Plan.PlaceBus), so that resolving stays pure. A parked sandbox has its
// proxy until it is released (Parked.Done).
package bus

import (
	"fmt"

	"github.com/cloche-dev/cloche/plan"
)

// Program is the name of the proxy, and of the package that has it on all
// distributions.
const Program = "xdg-dbus-proxy"

// socketName is the socket in a place's folder; maxSocketPath is the longest path
// of a socket, and the proxy does not notice that one is longer.
const (
	folderPrefix  = "cloche-bus-"
	socketName    = "bus"
	maxSocketPath = 107
)

// An Error says why there is no bus for the command.
type Error struct {
	// Step is what failed.
	Step string
	Err  error
	// Fix says what to do, if that is known.
	Fix string
}

// Error names the step, the reason and the fix.
func (e *Error) Error() string {
	s := fmt.Sprintf("the session bus cannot be shown: %s: %v", e.Step, e.Err)
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Missing is the error for a machine without the proxy.
func Missing() error {
	return &Error{Step: "find " + Program, Err: fmt.Errorf("it is not installed in a folder that only root can change"),
		Fix: "install the package " + Program + ", or run without --bus"}
}

// arguments are the proxy's, for a socket to listen on. The descriptor is the
// pipe on which it says that it is ready.
func arguments(b *plan.Bus, socket string, ready int) []string {
	args := []string{Program, fmt.Sprintf("--fd=%d", ready), b.Address, socket, "--filter"}
	for _, r := range b.Rules {
		args = append(args, "--"+r.Access+"="+r.String())
	}
	return args
}
