package seatbelt

import (
	"slices"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// onLinux is the fix for what only namespaces and mounts can do.
const onLinux = "run it on Linux, in a virtual machine for instance"

// A gapList collects gaps.
type gapList struct{ program.GapList }

// gapsOf lists the parts of a plan that a profile does not enforce. Gaps that only close more
// than necessary, and those that macOS has for every command, are optional: they are reported,
// and a strict policy runs. What a policy asks for by name is not optional.
func gapsOf(p *plan.Plan, lines []line) []backend.Gap {
	var l gapList
	l.layout(p)
	l.Review(p, "macOS has no file system that shows folders copy-on-write")
	l.patterns(p, lines)
	l.network(p)
	l.sockets(p)
	l.limits(p)
	l.machine()
	return l.List()
}

// layout lists what would need a mount.
func (l *gapList) layout(p *plan.Plan) {
	if p.Inside != p.Workspace && p.Inside != "" {
		l.Add(backend.Gap{Rule: "remap", Reason: "without mounts the workspace is at its own path", Fix: onLinux}, p.Inside)
	}
	for _, e := range p.Paths {
		moved := e.Content == plan.Host && e.Source != "" && e.Source != program.Unmap(p, e.Path) && !program.IsSocket(p, e.Path)
		switch {
		case moved && e.Create:
			l.Add(backend.Gap{Rule: "persist", Reason: "without mounts no folder can stand in for it; it is closed", Fix: onLinux, Origin: e.Origin}, e.Path)
		case moved:
			l.Add(backend.Gap{Rule: "binds", Reason: "without mounts nothing can be shown at another path; it is closed", Fix: onLinux, Origin: e.Origin}, e.Path)
		case e.Content == plan.Empty && e.Access == policy.Write:
			l.Add(backend.Gap{Rule: "tmp", Reason: "without mounts it cannot be private: it is closed, and TMPDIR leads to a folder of the run's own", Origin: e.Origin, Optional: true}, e.Path)
		case e.Content == plan.Text:
			l.Add(backend.Gap{Rule: "hosts", Reason: "without mounts the file is the host's", Fix: onLinux, Origin: e.Origin, Optional: e.Origin.Layer < policy.LayerUser}, e.Path)
		}
	}
}

// patterns lists the patterns that cannot be enforced by names alone.
func (l *gapList) patterns(p *plan.Plan, lines []line) {
	if !slices.ContainsFunc(lines, func(l line) bool { return l.access == policy.Write && l.whole }) {
		return
	}
	for i := range p.Globs {
		g := &p.Globs[i]
		optional := g.Optional || g.Origin.Layer < policy.LayerUser
		if g.Access != policy.Read || g.Origin.Layer == policy.LayerBuiltin {
			continue
		}
		if len(g.ExceptUnder) > 0 {
			l.Add(backend.Gap{Rule: "paths.protect", Origin: g.Origin, Optional: optional,
				Reason: "a file that is made in a folder where the rule does not apply can be moved out with its folder, or reached by a link"}, g.Pattern)
		}
		if slices.Contains(partsOf(g.Pattern)[1:], "**") {
			l.Add(backend.Gap{Rule: "paths.protect", Origin: g.Origin, Optional: optional,
				Reason: "a folder with such a name in it can be moved to where the pattern holds", Fix: "begin the pattern with **/, or protect the folder"}, g.Pattern)
		}
	}
	if len(gitGlobs(p)) > 0 {
		l.Add(backend.Gap{Rule: "git.config", Optional: true,
			Reason: "no repository can be made, cloned or configured inside, and git directories of another name than .git are like other folders"}, "")
	}
}

// network lists the parts of the plan's network that a profile does not enforce.
func (l *gapList) network(p *plan.Plan) {
	n := &p.Network
	switch n.Mode {
	case policy.NetworkNone:
		l.Add(backend.Gap{Rule: "network.loopback", Origin: n.Origin, Optional: true, Reason: "macOS has no loopback for one sandbox: there is none"}, "")
	case policy.NetworkLoopback:
		l.Add(backend.Gap{Rule: "network.mode", Origin: n.Origin, Fix: "forward or publish single ports with network: none",
			Reason: "the loopback is the machine's own: all that listens on it can be reached"}, n.Mode.String())
	case policy.NetworkUser:
		l.Add(backend.Gap{Rule: "network.mode", Origin: n.Origin, Fix: onLinux + ", or use network: none or host",
			Reason: "a profile cannot tell one host from another: the command gets no network at all"}, n.Mode.String())
	case policy.NetworkHost:
		return
	}
	for _, list := range []struct {
		rule  string
		ports []plan.Port
	}{{"network.publish", n.Publish}, {"network.forward", n.Forward}} {
		for _, port := range list.ports {
			if !holdsPort(port) && n.Mode != policy.NetworkLoopback {
				l.Add(backend.Gap{Rule: list.rule, Origin: port.Origin, Fix: "use one number on both sides, and the loopback",
					Reason: "the command uses the machine's own ports: it cannot have another number or address"}, port.String())
			}
		}
	}
}

// sockets lists granted sockets that cannot be reached.
func (l *gapList) sockets(p *plan.Plan) {
	if p.Bus != nil {
		l.Add(backend.Gap{Rule: "bus", Reason: "macOS has no session bus", Origin: p.Bus.Origin}, "")
	}
	for _, s := range p.Sockets {
		switch {
		case s.Abstract():
			l.Add(backend.Gap{Rule: "sockets", Reason: "macOS has no abstract sockets", Origin: s.Origin}, s.Path)
		case !holdsSocket(s):
			l.Add(backend.Gap{Rule: "sockets", Reason: "without mounts it cannot be shown at another path than its own: it cannot be reached", Origin: s.Origin}, s.Path)
		}
	}
}

// limits lists the limits that are not enforced here. Those of cloche or a preset are
// optional, because nobody asked for them.
func (l *gapList) limits(p *plan.Plan) {
	for _, limit := range p.Limits {
		switch {
		case limit.Value == policy.Unlimited:
		case limit.Name == plan.LimitMemory || limit.Name == plan.LimitProcesses:
			l.Add(backend.Gap{Rule: "limits." + limit.Name, Origin: limit.Origin, Optional: limit.Origin.Layer < policy.LayerUser,
				Reason: "macOS counts it for no group of processes", Fix: "set it to unlimited"}, "")
		}
	}
}

// machine lists the gaps of every command on macOS.
func (l *gapList) machine() {
	l.Add(backend.Gap{Rule: "lifetime", Optional: true,
		Reason: "a process that leaves the command's process group outlives it, and if cloche is killed so does the command"}, "")
	l.Add(backend.Gap{Rule: "ipc", Optional: true, Reason: "POSIX semaphores are the machine's own"}, "")
}
