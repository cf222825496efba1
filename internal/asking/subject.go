package asking

import (
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// shelves are folders of a home, relative to it, in which each program has a
// folder of its own: that folder is what a person is asked about.
var shelves = []string{".cache", ".config", ".local/share", ".local/state", ".local/lib", "Library/Caches", "Library/Application Support"}

// subject is what a person is asked about for one refused file: the file, or a
// folder around it for which one question is enough. A secret is asked about by
// itself. So is what lies in a folder that is too much to give: one that has the
// workspace, a home or the whole system in it, or something that another rule
// keeps; and what is refused by a rule about itself, which holds in a folder that is
// given.
func (a *Asker) subject(d *plan.Denial, behind *judge.Behind) string {
	if isSecret(d) || d.Rule == "paths.protect" || d.Rule == "paths.hide_found" {
		return behind.Path
	}
	if d.Op == plan.OpMkdir && a.shelved(behind.Path) == "" {
		return behind.Path
	}
	if folder := a.shelved(behind.Path); folder != "" && a.modest(folder, behind) && a.reaches(folder, d, behind) {
		return folder
	}
	if folder := path.Dir(behind.Path); a.modest(folder, behind) && a.reaches(folder, d, behind) {
		return folder
	}
	return behind.Path
}

// reaches reports whether the folder, if it is given, gives what was refused: no
// other rule is about something in it.
func (a *Asker) reaches(folder string, d *plan.Denial, behind *judge.Behind) bool {
	inside, ok := behind.Name(folder)
	if !ok {
		return false
	}
	line := plan.Path{Path: inside, Source: folder, Access: policy.Write, Origin: policy.Origin{Layer: policy.LayerGrant}}
	if d.Op == plan.OpRead {
		line.Access = policy.Read
	}
	return judge.NewFilesWith(a.plan, []plan.Path{line}).Path(d.Path).Access >= line.Access
}

// shelved is the folder of one program around a path, or empty. A folder whose
// name begins with a dot, directly in a home, is one as well.
func (a *Asker) shelved(hostPath string) string {
	home := a.home()
	if home == "" || !pathx.Within(home, hostPath) || home == hostPath {
		return ""
	}
	rel := pathx.Rel(home, hostPath)
	for _, s := range shelves {
		if rest, ok := strings.CutPrefix(rel, s+"/"); ok {
			return home + "/" + s + "/" + first(rest)
		}
	}
	if name := first(rel); strings.HasPrefix(name, ".") && name != rel && !onShelf(name) {
		return home + "/" + name
	}
	return ""
}

func first(rel string) string {
	name, _, _ := strings.Cut(rel, "/")
	return name
}

// onShelf reports whether a folder of a home is, or leads to, a shelf.
func onShelf(name string) bool {
	return slices.ContainsFunc(shelves, func(s string) bool { return first(s) == name })
}

func (a *Asker) home() string {
	for _, v := range a.plan.Env {
		if v.Name == "HOME" && path.IsAbs(v.Value) {
			return path.Clean(v.Value)
		}
	}
	return ""
}

// systemTrees belong to the system: of them only single files are asked about.
var systemTrees = []string{"/bin", "/boot", "/etc", "/lib", "/lib64", "/sbin", "/usr", "/var/lib"}

// leastDepth is how deep a folder lies at least that is asked about as a whole:
// /opt/tool is, /opt is not.
const leastDepth = 2

// modest reports whether a folder is not too much to ask for.
func (a *Asker) modest(folder string, behind *judge.Behind) bool {
	inside, ok := behind.Name(folder)
	if !ok || pathx.Depth(folder) < leastDepth || pathx.Within(folder, a.workspace) {
		return false
	}
	home := a.home()
	if home != "" && pathx.Within(folder, home) || slices.ContainsFunc(systemTrees, func(t string) bool { return pathx.Within(t, folder) }) {
		return false
	}
	if home != "" && pathx.Within(home, folder) {
		rel := pathx.Rel(home, folder)
		if slices.ContainsFunc(shelves, func(s string) bool { return pathx.Within(rel, s) }) {
			return false
		}
	}
	return !slices.ContainsFunc(a.plan.Paths, func(e plan.Path) bool {
		return e.Path != inside && (e.Access == policy.Hidden || e.Locked) && pathx.Within(inside, e.Path)
	})
}
