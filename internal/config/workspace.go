package config

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/cloche-dev/cloche/internal/ownfile"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// A Workspace is the folder that commands may write, with the reason for it.
type Workspace struct {
	// Dir is absolute and has no symbolic links.
	Dir string
	// Why says how it was found: "the working folder", for instance.
	Why string
	// GitFile is the file ".git" of a linked worktree or a submodule, if the choice depends
	// on it.
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
// symbolic links. It is the folder of the nearest project policy (which has to be trusted
// if it is above the working folder), otherwise the top of the git worktree, otherwise the
// working folder itself. files are the files that [Load] read for the working folder. An
// empty home means the user's.
//
// Everything in the workspace can be written, so nobody but the user may widen it. An
// untrusted policy file does not. A ".git" does only if it, its folder and all folders
// down to the working folder belong to the user and are on one file system, and not
// everybody may write its folder. A home folder, folders above one, and system folders are
// never chosen.
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

// Rule returns a rule that protects the file on which the choice of the workspace depends,
// if a command could remove it.
func (w *Workspace) Rule() (policy.PathRule, bool) {
	if w.GitFile == "" {
		return policy.PathRule{}, false
	}
	return policy.PathRule{Path: pathx.Literal(filepath.ToSlash(w.GitFile)), Access: policy.Read, Protect: true,
		Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: the .git of the workspace"}}, true
}

// nearestProject returns the project policy that is nearest to the working folder.
func nearestProject(files []File) (File, bool) {
	for _, f := range slices.Backward(files) { // the outermost comes first
		if f.Layer == policy.LayerProject {
			return f, true
		}
	}
	return File{}, false
}

// gitTop searches for the top of the git worktree around a folder. The first ".git" ends
// the search, whether it is valid or not: a command that damages the one in its workspace
// does not get a larger workspace next time.
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

// systemFolders are never chosen as the workspace: root may have a repository in /etc.
var systemFolders = []string{"/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/mnt", "/media", "/opt", "/proc", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/tmp"}

// tooWide reports whether a folder is a home, contains the user's home, or is a system
// folder.
func tooWide(dir, home string) bool {
	if filepath.Dir(dir) == dir || slices.Contains(systemFolders, dir) {
		return true
	}
	rel, err := filepath.Rel(dir, home)
	return home != "" && err == nil && filepath.IsLocal(rel)
}
