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

// Lookup returns the line that decides about inside: the one with the longest matching path.
// inside is an absolute path as seen inside, with symbolic links resolved. It is cleaned
// first: "/workspace/../etc" is "/etc".
func (p *Plan) Lookup(inside string) Path { return *p.longest(path.Clean(inside), false) }

// nowhere is the line for a path that no other line matches.
var nowhere = Path{Path: "/", Access: policy.Hidden, Content: Empty, Kind: hostfs.Dir}

// longest returns the line with the longest path that contains inside. If above is set, a line
// for inside itself does not count. It returns pointers because lines are large and may be
// many.
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

// Access returns the access that the plan gives to a path inside.
func (p *Plan) Access(inside string) policy.Access { return p.Lookup(inside).Access }

// ByDepth returns the lines sorted by depth, shallowest first, so that a deeper rule is
// applied on top of a shallower one. Lines of the same depth are sorted by path.
func (p *Plan) ByDepth() []Path {
	out := append([]Path(nil), p.Paths...)
	sort.SliceStable(out, func(i, j int) bool {
		return pathx.Depth(out[i].Path) < pathx.Depth(out[j].Path)
	})
	return out
}

// Pins returns the folders between a writable folder and each stricter path in it. A backend
// that hides or protects paths with mounts has to make each of these folders a mount of its
// own. Otherwise a command could rename such a folder: the mount below would move with it, and
// the name would be free. A mount point cannot be renamed. There are no pins for a path that
// does not exist, because folders above it may be missing too.
func (p *Plan) Pins() []string {
	var dirs []string
	for _, line := range p.PinLines(func(string) bool { return false }) {
		dirs = append(dirs, line.Path)
	}
	return dirs
}

// PinLines returns lines that mount each folder of [Plan.Pins] on itself. It is for a backend
// with a broker: held reports whether only the broker can move files in a writable folder. The
// broker moves no folder that contains a stricter line, so files found by a search need no
// mounts around them there. This matters because a project may have hundreds of such files,
// and no file can be renamed or hard-linked across a mount. A line is Volatile if all paths
// that it is needed for are: it may be gone, too.
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

// enclosing returns the line that would decide about the path if it had no line of its own.
func (p *Plan) enclosing(inside string) *Path { return p.longest(inside, true) }

// Writable returns the host paths of the files and folders that the command may write.
// Stricter lines may apply to parts of them.
func (p *Plan) Writable() []string {
	var list []string
	for i := range p.Paths {
		if e := &p.Paths[i]; e.Content == Host && e.Access == policy.Write && e.Source != "" {
			list = append(list, e.Source)
		}
	}
	return list
}

// HostPath translates a path inside to the host's path of the same file. ok is false if the
// host has no such file (private folders, generated files, /proc), and for a path that is not
// absolute. The path is cleaned first, as in Lookup. HostPath does not say whether the file
// may be used: patterns count for that too, see package judge.
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

// InsidePath translates a host path to the path at which the command sees the file. ok is
// false if the command does not see it, and for a path that is not absolute. The path is
// cleaned first.
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
		// Another line may show something else at that path.
		if back, shown := p.HostPath(at); !shown || back != hostPath || p.Access(at) == policy.Hidden {
			continue
		}
		if len(e.Source) >= len(best) {
			best, inside, ok = e.Source, at, true
		}
	}
	return inside, ok
}
