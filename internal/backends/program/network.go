package program

import (
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// HandNetworkOver sends the network namespace of the process over a socket, and
// before it the command's standard error, if it has one: whoever makes the network
// can say there why it could not. The number must be free, and is so again
// afterwards.
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

// AwaitNetwork waits for the byte that says that the network is there. If it
// could not be made, or the one who was to make it is gone, the step fails.
func AwaitNetwork(b sysprog.Block, socket sysprog.Arg) { b.Read(socket, 1) }

// LinkGaps lists what a link that is another program does not hold: it carries
// packets and knows no rules.
func LinkGaps(p *plan.Plan) []backend.Gap {
	n := &p.Network
	if n.Mode != policy.NetworkUser || !n.Link.External() {
		return nil
	}
	var gaps []backend.Gap
	name := n.Link.String()
	if !allowsAll(n) {
		gaps = append(gaps, backend.Gap{Rule: "network.allow", Subject: name, Origin: n.Origin,
			Reason: name + " carries every packet and knows no rules: the lists of allowed and denied hosts do not hold",
			Fix:    "use --net user, whose own link judges every connection, or allow * and deny nothing"})
	}
	return append(gaps, backend.Gap{Rule: "network.private", Subject: name, Origin: n.Origin,
		Reason: name + " reaches private addresses too: the machine's networks, not only the internet",
		Fix:    "use --net user, whose own link keeps them out"})
}

// allowsAll: every host at every port, with nothing denied.
func allowsAll(n *plan.Network) bool {
	if len(n.Deny) > 0 {
		return false
	}
	for i := range n.Allow {
		if h := &n.Allow[i]; h.Host == "*" && h.Port == 0 && h.Protocol == "" && len(h.Methods) == 0 && len(h.Paths) == 0 {
			return true
		}
	}
	return false
}
