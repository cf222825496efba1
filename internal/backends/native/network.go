package native

import (
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/builtin"
)

// If the supervisor serves the network, the network is made while the rest of the sandbox is:
// the program sends its namespace as early as possible and waits for the network only at its
// end.

// handoverFile returns the file for sending the network namespace, if it is sent.
func (c *compiler) handoverFile() []backend.File {
	if !c.handsOver {
		return nil
	}
	return []backend.File{{Kind: builtin.NetworkHandover}}
}

// handNetworkOver sends the namespace. The two numbers before that of the copy are those of
// the Landlock rules and of the filter's listener.
func (c *compiler) handNetworkOver() {
	c.launch.Network = c.plan.Network.NeedsHelp()
	if !c.handsOver {
		return
	}
	c.handover = c.fds.More[len(c.fds.More)-1]
	c.loopback()
	program.HandNetworkOver(c.by(c.plan.Network.Origin, "hand the network namespace over"), c.handover, c.fds.Free+2)
}

// awaitNetwork waits until the network is ready. The command does not run without it.
func (c *compiler) awaitNetwork() {
	if c.handsOver {
		program.AwaitNetwork(c.by(c.plan.Network.Origin, program.AwaitLabel), c.handover)
	}
}
