// Package bus runs the proxy through which a sandbox sees the user's session bus:
// xdg-dbus-proxy, which Flatpak uses too. A process that can talk to the bus itself can
// make systemd start any program outside. So the bus's own socket is never shown.
//
// The proxy runs outside the sandbox, as the user. It listens on a socket in a folder
// that only the user can enter. Once the sandbox has mounted the socket, cloche removes
// the socket and the folder, so nothing can be left behind. If this process is killed
// before that, another process removes them. The proxy ends when a pipe breaks whose
// other end this process has, so it ends with this process in every case.
//
// The path of the socket is chosen for each run and put into the plan before it is
// compiled (Plan.WithBusAt), so that resolving stays pure. A parked sandbox keeps its
// proxy until it is released (Parked.Done).
package bus

import (
	"fmt"

	"github.com/cloche-dev/cloche/plan"
)

// Program is the name of the proxy. The package has the same name on all distributions.
const Program = "xdg-dbus-proxy"

// socketName is the name of the socket in its folder. maxSocketPath is the length of
// the longest path of a socket; the proxy does not report that a path is longer.
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

// arguments returns the arguments of the proxy. socket is the path to listen on. ready
// is the descriptor to which the proxy writes when it listens.
func arguments(b *plan.Bus, socket string, ready int) []string {
	args := []string{Program, fmt.Sprintf("--fd=%d", ready), b.Address, socket, "--filter"}
	for _, r := range b.Rules {
		args = append(args, "--"+r.Access+"="+r.String())
	}
	return args
}
