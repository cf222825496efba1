package native

import (
	"slices"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/sysprog"
)

// A broker, in the supervisor, makes the changes in guarded folders that Landlock denies to
// the command itself: see package notify.

// brokered reports whether there is a broker.
func (c *compiler) brokered() bool { return c.layered() && c.judged() }

// judged reports whether the plan needs a broker, if the kernel supports one.
func (c *compiler) judged() bool { return c.guarding && c.plan.JudgesNames() && !c.unbrokered }

// holdsFolders reports whether only the broker can move files in a writable folder, also for
// every command in a parked sandbox.
func (c *compiler) holdsFolders(writable string) bool {
	return c.judged() && c.domain().HoldsFolders(writable)
}

// listenerFile returns the file for sending the listener to the broker, unless another file is
// used for that.
func (c *compiler) listenerFile() []backend.File {
	if !c.brokered() || c.launch.Awaits {
		return nil
	}
	return []backend.File{{Kind: builtin.Listener}}
}

// listenOn adds a listener to the filter, which is sent over the socket.
func (c *compiler) listenOn(socket sysprog.Arg) {
	c.listener, c.listens = socket, true
	c.launch.Guard = program.NewGuard(c.plan, c.snap, c.guards)
}

// guardGaps lists the rules about names that are not enforced.
func (c *compiler) guardGaps() {
	c.launch.Gaps = slices.Concat(c.launch.Gaps, c.domain().Gaps(), c.domain().SocketGaps(), c.domain().AbstractGaps())
}
