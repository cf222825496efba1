package program

import (
	"slices"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/plan"
)

// SocketGaps lists the gaps about sockets that the host makes later. Sockets that existed when
// the sandbox was made are hidden. Others are distinguished from the command's own by the
// kernel's Landlock from Linux 7.1 on, and before that by a broker, which cannot see where a
// datagram socket sends to.
func (d *Domain) SocketGaps() []backend.Gap {
	if d.Available() && resolvesSockets(d.Snap) {
		return nil
	}
	if reason, fix := d.unjudged(); reason != "" {
		return []backend.Gap{{Rule: "sockets.later", Subject: "sockets made later", Origin: d.Plan.Network.Origin, Optional: true,
			Reason: "one that the host makes while the command runs, in a folder that the command can read, can be reached: " + reason,
			Fix:    fix + ", or show fewer folders (--preset strict)"}}
	}
	if o := d.Plan.Datagrams; o != nil {
		return []backend.Gap{{Rule: "sockets.datagrams", Subject: "datagram sockets made later", Origin: *o, Optional: true,
			Reason: "the command may have unix datagram sockets, and sends by them to every one that the host makes while it runs, in a folder that it can read: the kernel can hold that from Linux 7.1 on",
			Fix:    "use Linux 7.1 or newer with Landlock, grant no datagram socket, or show fewer folders (--preset strict)"}}
	}
	return nil
}

// unjudged returns why no broker distinguishes the host's sockets from the command's own, and
// what would change that. Both are empty if one does.
func (d *Domain) unjudged() (reason, fix string) {
	switch {
	case !d.Available():
		return "a broker needs Landlock of Linux 5.19, which is missing", "use Linux 5.19 or newer with Landlock"
	case !judgesSockets(d.Plan):
		return "a command that keeps its privileges connects by itself", "do not set allow_privileged"
	case !d.Brokered:
		return "a policy without rules about names has no broker, who would connect for the command", "protect a pattern, such as **/.git/hooks"
	case d.Snap.UnixDiagnostics.Outcome == host.No:
		return d.Snap.UnixDiagnostics.Reason, d.Snap.UnixDiagnostics.Fix
	}
	return "", ""
}

// IsSocket reports whether a line of a plan is for a granted socket.
func IsSocket(p *plan.Plan, path string) bool {
	return p.Bus != nil && p.Bus.Path == path ||
		slices.ContainsFunc(p.Sockets, func(s plan.SocketPath) bool { return s.Path == path })
}
