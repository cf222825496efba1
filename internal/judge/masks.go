package judge

import (
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Masks tell which paths a plan hides by lines, for whoever asks about every file
// that is opened: asking costs a look-up for each folder of the path, and making
// them little, because patterns are left out. They never change and are safe for
// concurrent use.
type Masks struct {
	plan  *plan.Plan
	lines map[string]*plan.Path
	// around are the folders that are there because something in them is shown,
	// although a line hides the rest.
	around map[string]bool
	// hidesInSystem: a line hides something in one of the system's folders.
	hidesInSystem bool
}

// NewMasks returns those of the plan, which must not change afterwards.
func NewMasks(p *plan.Plan) *Masks {
	m := &Masks{plan: p, lines: make(map[string]*plan.Path, len(p.Paths))}
	for i := range p.Paths {
		m.lines[p.Paths[i].Path] = &p.Paths[i]
	}
	for i := range p.Paths {
		switch e := &p.Paths[i]; {
		case e.Access == policy.Hidden:
			m.hidesInSystem = m.hidesInSystem || inSystem(e.Path)
		case e.Path != "/":
			m.noteAround(e.Path)
		}
	}
	return m
}

// noteAround notes the hidden folders around a path that is shown.
func (m *Masks) noteAround(shown string) {
	for dir := path.Dir(shown); m.line(dir).Access == policy.Hidden && !m.around[dir]; dir = path.Dir(dir) {
		if m.around == nil {
			m.around = map[string]bool{}
		}
		m.around[dir] = true
		if dir == "/" {
			return
		}
	}
}

// line is the longest line around a path.
func (m *Masks) line(inside string) *plan.Path {
	for p := inside; ; p = parent(p) {
		if e := m.lines[p]; e != nil {
			return e
		}
		if p == "/" {
			return &nowhere
		}
	}
}

// parent is path.Dir of a clean absolute path.
func parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return "/"
}

// maxMaskLinks is how many of the plan's own links are followed.
const maxMaskLinks = 40

// Path reports whether a line hides a clean absolute path as seen inside, and
// which. Links that are lines of the plan are followed, others are not; real is
// the path behind them.
func (m *Masks) Path(inside string) (v plan.Decision, real string, hidden bool) {
	e := m.line(inside)
	for n := 0; e.Content == plan.Link && n < maxMaskLinks; n++ {
		target := e.Target
		if !strings.HasPrefix(target, "/") {
			target = path.Dir(e.Path) + "/" + target
		}
		inside = path.Clean(target + inside[len(e.Path):])
		e = m.line(inside)
	}
	if e.Access != policy.Hidden || m.around[inside] {
		return plan.Decision{}, inside, false
	}
	return ByLine(e), inside, true
}

// systemFolders are where programs and libraries are. They may be links, but only
// to others of them.
var systemFolders = []string{
	"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32",
}

// ShowsProgram reports whether a path that no line hides by its name need not be
// looked up to know that none hides what it leads to: it is the loader's cache or
// lies in one of the system's folders, or in one of those that have the libraries
// of an architecture, and the plan hides nothing there. Each program begins with
// such paths, and mostly needs no other.
func (m *Masks) ShowsProgram(inside string) bool {
	if inside == "/etc/ld.so.cache" {
		return true
	}
	dir, name := path.Split(inside)
	if name == "" || name == "." || name == ".." || m.hidesInSystem {
		return false
	}
	dir = strings.TrimSuffix(dir, "/")
	if slices.Contains(systemFolders, dir) {
		return true
	}
	above, architecture := path.Split(dir)
	return strings.Contains(architecture, "-linux-") && slices.Contains(systemFolders, strings.TrimSuffix(above, "/"))
}

// inSystem reports whether a path lies in one of the system's folders.
func inSystem(p string) bool {
	return slices.ContainsFunc(systemFolders, func(folder string) bool { return pathx.Within(folder, p) })
}

// Writable reports whether a line lets the path be written.
func (m *Masks) Writable(inside string) bool { return m.line(inside).Access == policy.Write }

// Covered are the files of the host that a path would be if nothing hid it. In a folder
// that a bind put there, a hidden path is one of the bound folder, or the host's own of that
// name, which an option shows there. There are none where the host has nothing to show.
func (m *Masks) Covered(inside string) []string {
	for p := inside; ; p = parent(p) {
		e := m.lines[p]
		if e != nil && e.Access != policy.Hidden {
			if e.Content != plan.Host && e.Content != plan.Empty || e.Source == "" {
				return nil
			}
			files := []string{pathx.Rebase(e.Path, e.Source, inside)}
			if own, ok := ownFile(m.plan, inside); ok && own != files[0] && m.line(inside) != e {
				files = append(files, own)
			}
			return files
		}
		if p == "/" {
			return []string{inside} // what is not listed is not shown
		}
	}
}
