package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
)

// FindProgram returns the real path of a program that is started outside of any
// sandbox, or "": in a folder of the system or of PATH, where only root could
// have put it. Root takes none from the folders to avoid, nor from the working
// folder, which its commands can write.
func FindProgram(name string, avoid ...string) string {
	search := programSearch{uid: os.Getuid()}
	if search.uid == 0 {
		cwd, _ := os.Getwd()
		search.avoid = avoided(append(avoid, cwd)...)
	}
	return search.find(name, append(slices.Clone(systemFolders), strings.Split(os.Getenv("PATH"), ":")...))
}

// CheckProgram says why a program must not be started outside of any sandbox, or
// returns nil: a command could have replaced it, or put another in its place.
// Commands can write the folders and files of writable, which are real paths of
// the host. The check follows the path as the kernel does, because each folder
// and each link on the way decides which program is run.
//
// Who lets commands write the root folder has nothing to lose here: it does not
// count. Neither do the members of a file's group, whom an administrator chose.
func CheckProgram(file string, writable []string) error {
	steps, err := stepsTo(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	uid := os.Getuid()
	for _, step := range steps {
		for _, w := range writable {
			if w != "/" && pathx.Within(w, step) && (uid == 0 || !rootOwned(step)) {
				return fmt.Errorf("%s can be changed by confined commands, which may write %s; keep the program elsewhere", file, w)
			}
		}
		fi, err := os.Lstat(step)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		owner, mode := hostfs.Owner(fi), fi.Mode()
		switch {
		case owner != 0 && owner != uid && owner != overflowUID:
			return fmt.Errorf("%s can be changed by another user, who owns %s; use one that belongs to you or to root", file, step)
		case mode.Perm()&0o002 != 0 && mode&(fs.ModeSymlink|fs.ModeSticky) == 0:
			return fmt.Errorf("%s can be changed by everybody, who may write %s; take that away: chmod o-w %s", file, step, step)
		}
	}
	return nil
}

// maxSteps bounds the way to a program. The kernel follows 40 links.
const maxSteps = 1000

// stepsTo returns every folder and link on the way to a file, and the file.
func stepsTo(file string) ([]string, error) {
	if !path.IsAbs(file) {
		return nil, errors.New("the path is not absolute")
	}
	var steps []string
	at, rest := "/", strings.Split(path.Clean(file), "/")[1:]
	for len(rest) > 0 {
		if len(steps) == maxSteps {
			return nil, errors.New("too many links")
		}
		next := path.Join(at, rest[0])
		rest = rest[1:]
		fi, err := os.Lstat(next)
		if err != nil {
			return nil, err
		}
		steps = append(steps, next)
		if fi.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil {
			return nil, err
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(strings.Trim(target, "/"), "/"), rest...)
	}
	return steps, nil
}
