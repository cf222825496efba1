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

// shelves are folders of the home in which each program has its own folder. A person is
// asked about that program's folder.
var shelves = []string{".cache", ".config", ".local/share", ".local/state", ".local/lib", "Library/Caches", "Library/Application Support"}

// subject returns the path to ask a person about when a file was denied: the file
// itself, or a folder around it, so that one question is enough. It is the file itself
// if the file is a secret, or if a rule for the file denies it, because that rule would
// still apply in a granted folder. It is also the file itself if the folder is too much
// to grant (see modest), or if granting the folder would not allow it (see reaches).
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

// reaches reports whether a grant for the folder would allow what was denied. It does
// not if another rule applies to the path.
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

// shelved returns the folder of one program that a path is in, or "". A folder directly
// in the home whose name begins with a dot counts as one too.
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

// onShelf reports whether a name in the home is a shelf, or the first part of one.
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

// systemTrees belong to the system. In them only single files are asked about.
var systemTrees = []string{"/bin", "/boot", "/etc", "/lib", "/lib64", "/sbin", "/usr", "/var/lib"}

// leastDepth is the smallest depth of a folder that is asked about as a whole:
// /opt/tool may be, /opt may not.
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
