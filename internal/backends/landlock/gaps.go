package landlock

import (
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/hostfs"
	ll "github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// fix is the fix for every gap that comes from having no mounts and no namespaces.
const fix = "allow user namespaces: see cloche doctor"

// A gapList collects the gaps of a plan.
type gapList struct{ program.GapList }

func (l *gapList) add(rule, subject, reason, fix string, o policy.Origin) {
	l.Add(backend.Gap{Rule: rule, Reason: reason, Fix: fix, Origin: o}, subject)
}

// gapsOf lists the parts of a plan that are not enforced by the grants and the filter with
// this ABI.
func gapsOf(p *plan.Plan, s *host.Snapshot, t *tree) []backend.Gap {
	var l gapList
	l.layout(p)
	l.Review(p, "without mounts nothing can be shown copy-on-write")
	l.strictInWritable(p, t)
	l.globs(p)
	l.git(p)
	l.files(s)
	l.network(p)
	l.sockets(p, s.Landlock.ABI, t)
	l.processes(s.Landlock.ABI)
	return l.List()
}

// layout lists what would need a mount.
func (l *gapList) layout(p *plan.Plan) {
	if p.Inside != p.Workspace && p.Inside != "" {
		l.add("remap", p.Inside, "without mounts the workspace is at its own path", fix, policy.Origin{})
	}
	for _, e := range p.Paths {
		switch {
		case program.IsSocket(p, e.Path): // see sockets
		case e.Persisted():
			l.add("persist", e.Path, "without mounts it cannot have a separate copy; it is closed", fix, e.Origin)
		case e.Content == plan.Host && e.Source != e.Path:
			l.add("binds", e.Path, "without mounts nothing can be shown at another path; it is closed", fix, e.Origin)
		case e.Content == plan.Empty && e.Access == policy.Write:
			l.add("tmp", e.Path, "without mounts it cannot be private; it is closed, and /dev/shm too", fix, e.Origin)
		case e.Content == plan.Text:
			l.add("hosts", e.Path, "without mounts the file is the host's", fix, e.Origin)
		}
	}
}

// strictInWritable lists rules inside writable folders, which cannot be enforced without
// losing something else: see the package comment.
func (l *gapList) strictInWritable(p *plan.Plan, t *tree) {
	const open = "it stays writable: Landlock cannot exclude a part of a writable folder"
	for _, e := range p.Paths {
		switch {
		case leftOpen(p, e):
			l.Add(backend.Gap{Rule: "paths.hide_found", Origin: e.Origin, Optional: true, Fix: fix,
				Reason: "it stays readable: to hide it, Landlock would have to forbid new files beside it"}, e.Path)
		case e.Kind == hostfs.Missing, e.Content == plan.Link && e.Protect:
			if t.writable(e.Path) {
				l.Add(backend.Gap{Rule: "paths.protect", Reason: open, Fix: fix, Origin: e.Origin, Optional: e.Optional}, e.Path)
			}
		case e.Access != policy.Read || e.Content != plan.Host || e.Source != e.Path || !t.writable(e.Path):
		case e.Protect:
			l.add("paths.protect", e.Path, open, fix, e.Origin)
		default:
			l.add("paths.read", e.Path, open, fix, e.Origin)
		}
	}
	for _, e := range t.apart {
		l.add("paths.write", e.Path, "something in it is hidden, so no file can be created directly in it", fix, e.Origin)
	}
}

func (l *gapList) globs(p *plan.Plan) {
	for _, g := range p.Globs {
		rule := "paths.hide"
		if g.Access == policy.Read {
			rule = "paths.protect"
		}
		l.Add(backend.Gap{Rule: rule, Reason: "Landlock has no patterns", Fix: "name the files or the folder that holds them",
			Origin: g.Origin, Optional: g.Optional}, g.Pattern)
	}
}

// git lists the writable paths. Landlock does not check names, so a command can leave hooks
// and settings there that git outside executes.
func (l *gapList) git(p *plan.Plan) {
	for _, root := range p.Guarded() {
		if e := p.Lookup(root); e.Content == plan.Host && e.Source == e.Path {
			l.Add(backend.Gap{Rule: builtin.RuleGit, Optional: true, Origin: e.Origin, Fix: fix,
				Reason: "hooks and settings of git directories can be written: Landlock cannot tell what git would run"}, root)
		}
	}
}

// files lists the operations on files that Landlock does not control.
func (l *gapList) files(s *host.Snapshot) {
	whose := "the user's own files"
	if s.UID == 0 {
		whose = "any file (as root)"
	}
	l.add("paths.metadata", "", "names, sizes and times of hidden files are visible, and mode, owner and times of "+whose+" can be changed", fix, policy.Origin{})
	if s.Landlock.ABI < ll.ABIRefer {
		l.add("paths.write", "", "files cannot be moved from one folder to another with Landlock ABI 1", "use Linux 5.19 or newer", policy.Origin{})
	}
	if s.Landlock.ABI < ll.ABITruncate {
		l.add("paths.write", "", "read-only files can be emptied by truncate with a Landlock ABI below 3", "use Linux 6.2 or newer", policy.Origin{})
	}
}

func (l *gapList) network(p *plan.Plan) {
	n := p.Network
	switch n.Mode {
	case policy.NetworkHost:
		return
	case policy.NetworkNone:
	case policy.NetworkLoopback:
		l.add("network.mode", n.Mode.String(), "without a network namespace there is no private loopback; the command gets no network at all", fix, n.Origin)
	case policy.NetworkUser:
		l.add("network.mode", n.Mode.String(), "without a network namespace there is no user-mode network; the command gets no network at all", fix, n.Origin)
	}
	for _, port := range n.Publish {
		l.add("network.publish", port.String(), "without a network namespace the command has no ports of its own", fix, port.Origin)
	}
	for _, port := range n.Forward {
		l.add("network.forward", port.String(), "without a network namespace one port of the host cannot be opened without all others; none can be reached", fix, port.Origin)
	}
	l.add("network.interfaces", "", "the host's interfaces, routes and connections are visible, and cannot be used", fix, n.Origin)
}

// sockets lists granted sockets that cannot be reached. Before ABI 9, allowing one socket
// would allow all, including those of the container engine and the session bus, so none is
// allowed.
func (l *gapList) sockets(p *plan.Plan, abi int, t *tree) {
	if p.Bus != nil {
		l.add("bus", "", "without mounts the proxy's socket cannot be shown: there is no session bus", fix, p.Bus.Origin)
	}
	for _, s := range p.Sockets {
		switch {
		case s.Abstract():
			l.add("sockets", s.Path, "without a network namespace one abstract socket cannot be told from all others: none can be reached", fix, s.Origin)
		case s.Path != s.Source:
			l.add("sockets", s.Path, "without mounts it cannot be shown at another path than its own: it cannot be reached", fix, s.Origin)
		case abi < ll.ABIUnix:
			l.add("sockets", s.Path, "Landlock below ABI 9 cannot open one socket without opening all: none can be reached", "use Linux 7.1 or newer, or allow user namespaces", s.Origin)
		case t.writable(s.Path):
			l.add("sockets", s.Path, "it lies in a writable folder and can be replaced", fix, s.Origin)
		}
	}
}

func (l *gapList) processes(abi int) {
	if abi >= ll.ABIScope {
		l.add("processes", "", "other processes, their arguments, names of keys and kernel tables are visible in /proc; processes cannot be signalled or traced", fix, policy.Origin{})
		return
	}
	const newer = "use Linux 6.12 or newer, or allow user namespaces"
	l.add("processes", "", "other processes, their arguments, names of keys and kernel tables are visible in /proc; processes of the same user can be signalled", newer, policy.Origin{})
	l.add("lifetime", "", "the command can kill the process that would end what it leaves behind", newer, policy.Origin{})
}
