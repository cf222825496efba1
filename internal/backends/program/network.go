package program

import (
	"github.com/cloche-dev/cloche/internal/sysprog"
)

// HandNetworkOver sends the network namespace of the process over a socket. Before that, it
// sends the command's standard error, if there is one, so that an error in making the network
// can be printed there. The number must be free, and is free again afterwards.
func HandNetworkOver(b sysprog.Block, socket sysprog.Arg, number int) {
	const standardError = 2
	b.Ignoring(sysprog.EBADF).SendFD(socket, standardError)
	namespace := b.Openat(sysprog.Cwd(), "/proc/self/ns/net", sysprog.OpenRead, 0)
	b.Dup3(namespace, number)
	b.SendFD(socket, number)
	b.Close(sysprog.FD(number))
	b.Close(namespace)
}

// AwaitLabel is the label of AwaitNetwork's step.
const AwaitLabel = "wait for the network, which cloche makes from outside"

// AwaitNetwork waits for the byte that says that the network is ready. If the network could
// not be made, or the supervisor has ended, the step fails.
func AwaitNetwork(b sysprog.Block, socket sysprog.Arg) { b.Read(socket, 1) }
