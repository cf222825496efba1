//go:build amd64 || arm64

package notify

import (
	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// refuseDatagrams answers socket(2) and socketpair(2) of a unix datagram socket: it
// could send to a socket of the host by any of the calls that send, which nobody
// judges. The error is the one that the manual has for a type that may not be used.
func (c *call) refuseDatagrams() {
	c.record(plan.OpConnect, "unix datagram sockets", plan.Verdict{Access: policy.Hidden, Rule: plan.RuleSockets, Subject: policy.Datagrams, At: policy.Datagrams,
		Reason: "by one, sockets that the host makes later can be sent to", Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: sockets"}})
	c.fail(unix.EACCES)
}
