package judge

import (
	"path"
	"slices"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Places are all paths at which the command sees a file of the host. The first is
// where it sees the file under its own name, if it does.
func Places(p *plan.Plan, hostPath string) []string {
	var list []string
	hostPath = path.Clean(hostPath)
	own := OwnPlace(p, hostPath)
	for i := range p.Paths {
		e := &p.Paths[i]
		if e.Content != plan.Host || e.Source == "" || !pathx.Within(e.Source, hostPath) {
			continue
		}
		at := pathx.Rebase(e.Source, e.Path, hostPath)
		// Another line may cover that place with something else.
		if back, shown := p.HostPath(at); !shown || back != hostPath || p.Access(at) == policy.Hidden || slices.Contains(list, at) {
			continue
		}
		if at == own {
			list = slices.Insert(list, 0, at)
		} else {
			list = append(list, at)
		}
	}
	return list
}

// OwnPlace is the path under which the command looks for a path of the host, whether
// or not it finds the same file there: the path itself, unless the workspace is
// elsewhere inside.
func OwnPlace(p *plan.Plan, hostPath string) string {
	if p.Inside != "" && pathx.Within(p.Workspace, hostPath) {
		return pathx.Rebase(p.Workspace, p.Inside, hostPath)
	}
	return hostPath
}

// OnHost returns a path inside as rules name it: the path of the host that the command
// looks for there, also of what is hidden.
func OnHost(p *plan.Plan, inside string) string {
	if p != nil && p.Inside != "" && pathx.Within(p.Inside, inside) {
		return pathx.Rebase(p.Inside, p.Workspace, inside)
	}
	return inside
}

// ownFile is OnHost, and false where the command looks for no file of the host.
func ownFile(p *plan.Plan, inside string) (hostPath string, ok bool) {
	hostPath = OnHost(p, inside)
	return hostPath, OwnPlace(p, hostPath) == inside
}

// HasDevice reports whether a path is a device in the /dev that a line shows.
func HasDevice(e *plan.Path, inside string) bool {
	return e.Content == plan.Devices && path.Dir(inside) == e.Path && slices.Contains(wellknown.DeviceNodes, path.Base(inside))
}

// HostPath returns what the plan says of a real path of the host, by a judge of the
// plan, and the line that shows it or stands in its place. A file that is shown at
// several paths can be used by any of them, so the most that one gives counts. A file
// that is shown nowhere is hidden, although the command may have something else under
// that name.
func (j *Files) HostPath(p *plan.Plan, hostPath string) (plan.Decision, plan.Path) {
	var best plan.Decision
	var line plan.Path
	places := Places(p, hostPath)
	for i, at := range places {
		if v := j.Path(at); i == 0 || v.Access > best.Access {
			best, line = v, p.Lookup(at)
		}
	}
	if len(places) > 0 {
		return best, line
	}
	own := OwnPlace(p, hostPath)
	best, line = j.Path(own), p.Lookup(own)
	if HasDevice(&line, own) {
		return best, line
	}
	if best.Access != policy.Hidden {
		best = ByLine(&line)
	}
	best.Access, line.Access = policy.Hidden, policy.Hidden
	return best, line
}
