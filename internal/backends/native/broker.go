package native

import (
	"slices"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/sysprog"
)

// A broker, in the supervisor, makes the changes of guarded folders that
// Landlock refuses the command itself: see package notify.

// brokered reports whether there is one.
func (c *compiler) brokered() bool { return c.layered() && c.judged() }

// judged reports whether there is to be one where the kernel can have it.
func (c *compiler) judged() bool { return c.guarding && c.plan.JudgesNames() && !c.unbrokered }

// holdsFolders reports whether in a writable folder only the broker moves anything,
// for every command of a parked sandbox too.
func (c *compiler) holdsFolders(writable string) bool {
	return c.judged() && c.domain().HoldsFolders(writable)
}

// listenerFile is the file of a launch that has a broker, unless another file
// serves for that.
func (c *compiler) listenerFile() []backend.File {
	if !c.brokered() || c.launch.Awaits {
		return nil
	}
	return []backend.File{{Kind: builtin.Listener}}
}

// listenOn makes the filter one with a listener, which goes to the socket.
func (c *compiler) listenOn(socket sysprog.Arg) {
	c.listener, c.listens = socket, true
	c.launch.Guard = program.NewGuard(c.plan, c.snap, c.guards)
}

// guardGaps lists the rules about names that are not held.
func (c *compiler) guardGaps() {
	c.launch.Gaps = slices.Concat(c.launch.Gaps, c.domain().Gaps(), c.domain().SocketGaps(), c.domain().AbstractGaps())
}
