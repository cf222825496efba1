package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
)

// FindProgram returns the real path of a program that will run outside any sandbox, or
// "". It searches the folders of the system and of PATH, and accepts only programs that
// nobody but root could have put there. If the caller is root, it accepts none in the
// working folder or the folders in avoid: root's commands can write there.
func FindProgram(name string, avoid ...string) string {
	search := programSearch{uid: os.Getuid(), trusted: rootOwned}
	if search.uid == 0 {
		cwd, _ := os.Getwd()
		search.avoid = avoided(append(avoid, cwd)...)
	}
	return search.find(name, append(slices.Clone(systemFolders), strings.Split(os.Getenv("PATH"), ":")...))
}

// CheckProgram returns why a program must not run outside any sandbox, or nil: a
// confined command could have replaced it, or put another one in its place. writable
// are real paths of the host that commands can write. The check follows the path as the
// kernel does, because every folder and link on the way decides which program runs.
//
// A writable root folder is ignored: a user who lets commands write everything gains
// nothing from this check. So are the members of a file's group, whom an administrator
// chose.
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

// maxSteps bounds the number of folders and links on the way to a program. The kernel
// follows 40 links.
const maxSteps = 1000

// stepsTo returns every folder and link on the way to a file, and the file itself.
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

// systemFolders are searched before PATH, which may name folders that commands
// can write.
var systemFolders = []string{
	"/usr/bin", "/usr/local/bin", "/bin",
	"/run/current-system/sw/bin",      // NixOS
	"/run/current-system/profile/bin", // Guix System
}

// avoided returns the folders from which no program is taken, with and without their
// symbolic links resolved. The root folder is left out: everything is in it, and a user
// who lets commands write all of it gains nothing from this check.
func avoided(folders ...string) []string {
	var out []string
	for _, f := range folders {
		real, _ := filepath.EvalSymlinks(f)
		for _, f := range []string{path.Clean(f), real} {
			if path.IsAbs(f) && f != "/" && !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	return out
}

// A programSearch finds programs that run unconfined. exec.LookPath would accept a
// program that an earlier command left in the workspace, if PATH has a relative entry
// or one in the workspace (a virtual environment, node_modules/.bin).
type programSearch struct {
	uid     int
	avoid   []string          // for root: folders from which no program is taken, because root's commands can write there
	trusted func(string) bool // reports whether a real path is safe
}

// find returns the real path of the first acceptable program with the name, or "".
func (p programSearch) find(name string, folders []string) string {
	for _, dir := range folders {
		file := path.Join(dir, name)
		if !path.IsAbs(dir) || !isExecutable(file) {
			continue
		}
		real, err := filepath.EvalSymlinks(file)
		if err == nil && isExecutable(real) && !p.avoids(path.Dir(file)) && !p.avoids(real) && p.trusted(real) {
			return real
		}
	}
	return ""
}

func isExecutable(file string) bool {
	fi, err := os.Stat(file)
	return err == nil && fi.Mode().IsRegular() && fi.Mode().Perm()&0o111 != 0
}

func (p programSearch) avoids(file string) bool {
	return p.uid == 0 && slices.ContainsFunc(p.avoid, func(a string) bool { return pathx.Within(a, file) })
}

// overflowUID is the owner that the kernel shows for users that the caller's user
// namespace does not map, for example the real root inside a container of an ordinary
// user. It is never the caller itself.
const overflowUID = 65534

// rootOwned reports whether only root could have changed the file or a folder above it.
// A program elsewhere may come from a command that was allowed to write there, in
// another workspace or at another time. A user who keeps a program in a folder of their
// own can name it in the policy.
func rootOwned(file string) bool {
	for ; ; file = path.Dir(file) {
		fi, err := os.Stat(file)
		if err != nil || fi.Mode().Perm()&0o022 != 0 {
			return false
		}
		if uid := hostfs.Owner(fi); uid != 0 && uid != overflowUID {
			return false
		}
		if file == "/" {
			return true
		}
	}
}

func isSetuid(file string) bool {
	fi, err := os.Stat(file)
	return err == nil && fi.Mode()&fs.ModeSetuid != 0
}
