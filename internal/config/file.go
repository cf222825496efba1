package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cloche-dev/cloche/policy"
)

// An ExposedError says that a file which must be the user's own can be changed
// by others.
type ExposedError struct {
	What, Path, Why string
}

// Error names the file and the fix.
func (e *ExposedError) Error() string {
	return fmt.Sprintf("%s %s: %s; own it and run chmod go-w %s", e.What, e.Path, e.Why, e.Path)
}

// A content is what one open file held: the bytes that are hashed are the
// bytes that are parsed, so a file that is swapped in between cannot pass.
type content struct {
	data []byte
	info fs.FileInfo
}

func (c content) sum() string { return hexSum(c.data) }

func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// exposed says why others can change the file; empty if they cannot. Groups
// are not looked at: many systems give each user a group of their own, and a
// file mode that lets it write.
func (c content) exposed() string {
	if why := foreignOwner(c.info); why != "" {
		return why
	}
	if worldWritable(c.info) {
		return "everyone may write it"
	}
	return ""
}

// readFile reads a regular file of a sensible size. The open does not block,
// so a FIFO put in the file's place cannot hang the caller.
func readFile(path string) (content, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return content{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return content{}, err
	}
	if !info.Mode().IsRegular() {
		return content{}, errors.New("not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, policy.MaxFileSize+1))
	if err != nil {
		return content{}, err
	}
	if len(data) > policy.MaxFileSize {
		return content{}, fmt.Errorf("larger than %s", policy.Size(policy.MaxFileSize))
	}
	return content{data: data, info: info}, nil
}

// describe says which file an error is about, once.
func describe(what, path string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return fmt.Errorf("%s %s: %w", what, path, err)
}

// FindProject returns the nearest of [FindProjects], or the empty string.
func FindProject(workspace, home string) (string, error) {
	files, err := FindProjects(workspace, home)
	if len(files) == 0 {
		return "", err
	}
	return files[0], err
}

// FindProjects returns the project policy files for a workspace, nearest first:
// each ProjectFileName in the workspace or a folder above it, up to and including
// home (empty: the user's) or the root. All of them count: a command could leave
// one in a folder of its workspace, and if that one alone counted, it would undo
// what those above take away. The folders have no symbolic links, so that one
// project has one path.
func FindProjects(workspace, home string) ([]string, error) {
	dir, err := realFolder(workspace)
	if err != nil {
		return nil, describe("workspace", workspace, err)
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
			return files, describe("project policy", path, err)
		}
		parent := filepath.Dir(dir)
		if parent == dir || dir == stop {
			return files, nil
		}
		dir = parent
	}
}

// strangers reports whether a file above the workspace belongs to somebody else:
// in a shared folder anybody could make one that nobody can get past.
func strangers(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && foreignOwner(info) != ""
}

func realFolder(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// homeFolder is the real path of the home folder; empty if there is none.
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

// folderOf is the folder of a file in the slash form of policies.
func folderOf(path string) string { return filepath.ToSlash(filepath.Dir(path)) }
