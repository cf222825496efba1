package plan

import (
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// Lookup returns the line that decides about inside, an absolute path as seen inside
// whose symbolic links are resolved: the longest match. The path is cleaned first:
// "/workspace/../etc" is "/etc".
func (p *Plan) Lookup(inside string) Path { return *p.longest(path.Clean(inside), false) }

// nowhere decides where no line does.
var nowhere = Path{Path: "/", Access: policy.Hidden, Content: Empty, Kind: hostfs.Dir}

// longest is the line of the longest path around one, or above it. The lines are
// large and may be many: they are compared where they are.
func (p *Plan) longest(inside string, above bool) *Path {
	best := &nowhere
	for i := range p.Paths {
		e := &p.Paths[i]
		if len(e.Path) >= len(best.Path) && len(e.Path) <= len(inside) && pathx.Within(e.Path, inside) && !(above && e.Path == inside) {
			best = e
		}
	}
	return best
}

// Access returns what the path may be used for inside.
func (p *Plan) Access(inside string) policy.Access { return p.Lookup(inside).Access }

// ByDepth returns the lines shallowest first, so that a deeper rule is applied
// on top of a shallower one; lines of one depth are in the order of their paths.
func (p *Plan) ByDepth() []Path {
	out := append([]Path(nil), p.Paths...)
	sort.SliceStable(out, func(i, j int) bool {
		return pathx.Depth(out[i].Path) < pathx.Depth(out[j].Path)
	})
	return out
}

// Pins returns the folders between a writable tree and each stricter path
// inside it. A backend that masks by mounts has to make each of them a mount
// of its own: renaming a parent would carry the mask away with it and free
// the name, and a mount point cannot be renamed. A path that does not exist has
// none: folders on its way may be missing too.
func (p *Plan) Pins() []string {
	var dirs []string
	for _, line := range p.PinLines(func(string) bool { return false }) {
		dirs = append(dirs, line.Path)
	}
	return dirs
}

// PinLines are the lines that mount each folder of [Plan.Pins] on itself, for a backend
// with a broker: held reports the writable folders in which nobody but the broker moves
// anything. It moves no folder that a line is in, see [Judge.Pinned], so that the folders
// around files which a search found need no mounts there: a project may have hundreds of
// them, and between two mounts no file can be renamed or linked. A folder that is pinned
// only for paths that may be gone may be gone itself.
func (p *Plan) PinLines(held func(writable string) bool) []Path {
	at := map[string]int{}
	var pins []Path
	for i := range p.Paths {
		e := &p.Paths[i]
		if e.Path == "/" || e.Kind == hostfs.Missing {
			continue
		}
		outer := p.enclosing(e.Path)
		if outer.Access != policy.Write || outer.Content != Host || e.Found && held(outer.Path) {
			continue
		}
		for _, d := range pathx.Between(outer.Path, e.Path) {
			n, known := at[d]
			if !known {
				n, at[d] = len(pins), len(pins)
				pins = append(pins, Path{Path: d, Source: pathx.Rebase(outer.Path, outer.Source, d),
					Kind: hostfs.Dir, Access: policy.Write, Origin: outer.Origin, Volatile: true})
			}
			pins[n].Volatile = pins[n].Volatile && e.Volatile
		}
	}
	slices.SortFunc(pins, func(a, b Path) int { return strings.Compare(a.Path, b.Path) })
	return pins
}

// enclosing is the line that would decide about the path if it had none of its own.
func (p *Plan) enclosing(inside string) *Path { return p.longest(inside, true) }

// Writable returns the files and folders of the host that the command may write,
// as paths of the host. Rules inside them may take parts away.
func (p *Plan) Writable() []string {
	var list []string
	for i := range p.Paths {
		if e := &p.Paths[i]; e.Content == Host && e.Access == policy.Write && e.Source != "" {
			list = append(list, e.Source)
		}
	}
	return list
}

// HostPath translates a path inside to the host's path for the same file.
// ok is false where the host has no such file: private folders, generated
// files, /proc; and for a path that is not absolute. The path is cleaned first, as in
// Lookup. It says where the file is and not whether it may be used: see [Judge.Path].
func (p *Plan) HostPath(inside string) (hostPath string, ok bool) {
	if !path.IsAbs(inside) {
		return "", false
	}
	inside = path.Clean(inside)
	e := p.longest(inside, false)
	if e.Content != Host || e.Source == "" {
		return "", false
	}
	return pathx.Rebase(e.Path, e.Source, inside), true
}

// InsidePath translates a path of the host to where the command sees that
// file. ok is false where it sees it nowhere, and for a path that is not absolute. The
// path is cleaned first.
func (p *Plan) InsidePath(hostPath string) (inside string, ok bool) {
	if !path.IsAbs(hostPath) {
		return "", false
	}
	hostPath = path.Clean(hostPath)
	best := ""
	for _, e := range p.Paths {
		if e.Content != Host || e.Source == "" || !pathx.Within(e.Source, hostPath) {
			continue
		}
		at := pathx.Rebase(e.Source, e.Path, hostPath)
		// Another line may cover that place with something else.
		if back, shown := p.HostPath(at); !shown || back != hostPath || p.Access(at) == policy.Hidden {
			continue
		}
		if len(e.Source) >= len(best) {
			best, inside, ok = e.Source, at, true
		}
	}
	return inside, ok
}
