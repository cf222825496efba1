package plan

import (
	"path"
	"slices"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/policy"
)

// Places are all paths at which the command sees a file of the host. The first is
// where it sees the file under its own name, if it does.
func (p *Plan) Places(hostPath string) []string {
	var list []string
	hostPath = path.Clean(hostPath)
	own := p.OwnPlace(hostPath)
	for i := range p.Paths {
		e := &p.Paths[i]
		if e.Content != Host || e.Source == "" || !pathx.Within(e.Source, hostPath) {
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
func (p *Plan) OwnPlace(hostPath string) string {
	if p.Inside != "" && pathx.Within(p.Workspace, hostPath) {
		return pathx.Rebase(p.Workspace, p.Inside, hostPath)
	}
	return hostPath
}

// ownFile is the path of the host that the command looks for under a path inside: the
// reverse of OwnPlace. ok is false where it looks for none.
func (p *Plan) ownFile(inside string) (hostPath string, ok bool) {
	hostPath = inside
	if p.Inside != "" && pathx.Within(p.Inside, inside) {
		hostPath = pathx.Rebase(p.Inside, p.Workspace, inside)
	}
	return hostPath, p.OwnPlace(hostPath) == inside
}

// HasDevice reports whether a path is a device in the /dev that the line shows.
func (e *Path) HasDevice(inside string) bool {
	return e.Content == Devices && path.Dir(inside) == e.Path && slices.Contains(wellknown.DeviceNodes, path.Base(inside))
}

// JudgeHost returns what the plan says of a real path of the host, by a judge of the
// plan, and the line that shows it or stands in its place. A file that is shown at
// several paths can be used by any of them, so the most that one gives counts. A file
// that is shown nowhere is hidden, although the command may have something else under
// that name.
func (p *Plan) JudgeHost(j *Judge, hostPath string) (Verdict, Path) {
	var best Verdict
	var line Path
	places := p.Places(hostPath)
	for i, at := range places {
		if v := j.Path(at); i == 0 || v.Access > best.Access {
			best, line = v, p.Lookup(at)
		}
	}
	if len(places) > 0 {
		return best, line
	}
	own := p.OwnPlace(hostPath)
	best, line = j.Path(own), p.Lookup(own)
	if line.HasDevice(own) {
		return best, line
	}
	if best.Access != policy.Hidden {
		best = line.Verdict()
	}
	best.Access, line.Access = policy.Hidden, policy.Hidden
	return best, line
}
