package config

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/cloche-dev/cloche/internal/ownfile"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// A Workspace is the folder that commands work on, with the reason for it.
type Workspace struct {
	// Dir is absolute and has no symbolic links.
	Dir string
	// Why says how it was found: "the working folder", for instance.
	Why string
	// GitFile is the file ".git" of a linked work tree or a submodule, where that decided.
	GitFile string
}

// The reasons.
const (
	WhyNamed   = "named by --workspace"
	WhyProject = "the folder of " + ProjectFileName
	WhyGit     = "the top of the git work tree"
	WhyHere    = "the working folder"
)

// FindWorkspace returns the workspace for a working folder, which is absolute and has no
// symbolic links: the folder of the nearest project policy, which has to be trusted if it
// lies above, else the top of the git work tree, else the working folder itself. files
// are those that [Load] read for the working folder; home empty is the user's.
//
// Everything in the workspace can be written, so nobody but the user may widen it. A file
// that is not trusted does not, and a ".git" only if it, its folder and all folders on the
// way belong to the user, not everybody may write its folder, and it is on the same file
// system. A home folder, what is above one, and folders of the system are never found.
func FindWorkspace(dir, home string, files []File) Workspace {
	home = homeFolder(home)
	if file, ok := nearestProject(files); ok {
		folder := filepath.Dir(file.Path)
		if folder == dir || file.Trusted && !tooWide(folder, home) {
			return Workspace{Dir: folder, Why: WhyProject}
		}
	}
	if w, ok := gitTop(dir, home); ok {
		return w
	}
	return Workspace{Dir: dir, Why: WhyHere}
}

// Rule protects what the choice of the workspace depends on and a command could take away.
func (w *Workspace) Rule() (policy.PathRule, bool) {
	if w.GitFile == "" {
		return policy.PathRule{}, false
	}
	return policy.PathRule{Path: pathx.Literal(filepath.ToSlash(w.GitFile)), Access: policy.Read, Protect: true,
		Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: the .git of the workspace"}}, true
}

// nearestProject is the project policy that is nearest to the working folder.
func nearestProject(files []File) (File, bool) {
	for _, f := range slices.Backward(files) { // the outermost comes first
		if f.Layer == policy.LayerProject {
			return f, true
		}
	}
	return File{}, false
}

// gitTop looks for the top of the git work tree around a folder. The first ".git" ends
// the search, whatever it is: a command that spoils the one in its workspace does not get
// a larger workspace next time.
func gitTop(dir, home string) (Workspace, bool) {
	var below os.FileInfo
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil || tooWide(at, home) || !ownfile.Own(info) || below != nil && !ownfile.SameDevice(below, info) {
			return Workspace{}, false
		}
		git, err := os.Lstat(filepath.Join(at, ".git"))
		switch {
		case os.IsNotExist(err):
			below = info
			continue
		case err != nil, git.Mode()&os.ModeSymlink != 0, !ownfile.Own(git), at != dir && ownfile.WorldWritable(info):
			return Workspace{}, false
		}
		w := Workspace{Dir: at, Why: WhyGit}
		if !git.IsDir() {
			w.GitFile = filepath.Join(at, ".git")
		}
		return w, true
	}
}

// systemFolders are never a workspace that is found: root may have a repository in /etc.
var systemFolders = []string{"/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/mnt", "/media", "/opt", "/proc", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/tmp"}

// tooWide reports whether a folder is a home, holds the user's home, or is the system's.
func tooWide(dir, home string) bool {
	if filepath.Dir(dir) == dir || slices.Contains(systemFolders, dir) {
		return true
	}
	rel, err := filepath.Rel(dir, home)
	return home != "" && err == nil && filepath.IsLocal(rel)
}
