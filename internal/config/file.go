package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cloche-dev/cloche/internal/ownfile"
)

// FindProjects returns the project policy files for a workspace, nearest first: each
// ProjectFileName in the workspace or a folder above it, up to and including home
// (empty: the user's) or the root. All of them apply. If only the nearest applied, a
// command could create one in a folder of its workspace, and so undo the restrictions
// of those above. The workspace is an absolute path without symbolic links, so that a project has
// only one path. It is not resolved here: a command may have put a link in its place meanwhile.
func FindProjects(workspace, home string) ([]string, error) {
	dir := filepath.Clean(workspace)
	if _, err := os.Stat(dir); err != nil {
		return nil, ownfile.Describe("workspace", workspace, err)
	}
	var files []string
	stop := homeFolder(home)
	for {
		path := filepath.Join(dir, ProjectFileName)
		_, err := os.Lstat(path)
		switch {
		case err == nil:
			files = append(files, path)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
			return files, ownfile.Describe("project policy", path, err)
		}
		parent := filepath.Dir(dir)
		if parent == dir || dir == stop {
			return files, nil
		}
		dir = parent
	}
}

// strangers reports whether a file belongs to another user. In a shared folder above
// the workspace, anybody could create a policy file that blocks every command.
func strangers(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && ownfile.ForeignOwner(info) != ""
}

func realFolder(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// homeFolder returns the real path of the home folder, or "".
func homeFolder(home string) string {
	if home == "" {
		home, _ = os.UserHomeDir()
	}
	if home == "" {
		return ""
	}
	dir, err := realFolder(home)
	if err != nil {
		return filepath.Clean(home)
	}
	return dir
}

func absolute(name string) (string, error) {
	if name == "" {
		return "", errors.New("the file's name is empty")
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", errors.New("the file's name holds a NUL byte")
	}
	return filepath.Abs(name)
}

// folderOf returns the folder of a file, with slashes as in policies.
func folderOf(path string) string { return filepath.ToSlash(filepath.Dir(path)) }
