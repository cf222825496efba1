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

	"github.com/cloche-dev/cloche/host"
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

// systemFolders are searched before PATH, which may name folders that commands
// can write.
var systemFolders = []string{
	"/usr/bin", "/usr/local/bin", "/bin",
	"/run/current-system/sw/bin",      // NixOS
	"/run/current-system/profile/bin", // Guix System
}

// findBwrap looks bwrap up for the snapshot's caller.
func findBwrap(s *host.Snapshot, workspace string) host.Bwrap {
	if s.OS != "linux" {
		return host.Bwrap{}
	}
	search := programSearch{uid: s.UID}
	if s.UID == 0 {
		search.avoid = avoided(s.Cwd, workspace)
	}
	pathVar, _ := s.Getenv("PATH")
	file := search.find("bwrap", append(slices.Clone(systemFolders), strings.Split(pathVar, ":")...))
	return host.Bwrap{Path: file, Setuid: file != "" && isSetuid(file)}
}

// avoided returns the folders that no program is taken from, with and without
// their symbolic links resolved. The root folder is not one of them: everything
// lies in it, and who lets commands write all of it has nothing to lose here.
func avoided(folders ...string) []string {
	var out []string
	for _, f := range folders {
		f = path.Clean(f)
		if !path.IsAbs(f) || slices.Contains(out, f) {
			continue
		}
		out = append(out, f)
		if real, err := filepath.EvalSymlinks(f); err == nil {
			out = append(out, real)
		}
	}
	var kept []string
	for _, f := range out {
		if f != "/" {
			kept = append(kept, f)
		}
	}
	return kept
}

// A programSearch looks programs up that run unconfined. What exec.LookPath
// does would run a program that an earlier command left in the workspace, when
// PATH has an entry there (a virtual environment, node_modules/.bin) or a
// relative one.
type programSearch struct {
	uid   int
	avoid []string // where root takes none from: its commands can write there
	// trusted judges a real path; nil is rootOwned.
	trusted func(string) bool
}

// find returns the real path of the first acceptable program of that name, or
// the empty string.
func (p programSearch) find(name string, folders []string) string {
	for _, dir := range folders {
		if !path.IsAbs(dir) || !exists(path.Join(dir, name)) {
			continue
		}
		if real, err := filepath.EvalSymlinks(path.Join(dir, name)); err == nil && p.acceptable(path.Clean(dir), real) {
			return real
		}
	}
	return ""
}

// acceptable judges the program at the path real, found through the folder dir.
func (p programSearch) acceptable(dir, real string) bool {
	fi, err := os.Stat(real)
	if err != nil || !fi.Mode().IsRegular() || fi.Mode().Perm()&0o111 == 0 {
		return false
	}
	if p.uid == 0 && (p.inside(dir) || p.inside(real)) {
		return false // root's command can change what belongs to root
	}
	if p.trusted != nil {
		return p.trusted(real)
	}
	return rootOwned(real)
}

func (p programSearch) inside(file string) bool {
	for _, a := range p.avoid {
		if pathx.Within(a, file) {
			return true
		}
	}
	return false
}

// overflowUID stands for every owner that the caller's user namespace does not
// know: the real root, inside a container of an ordinary user. It is never the
// caller itself.
const overflowUID = 65534

// rootOwned reports whether only root could have changed the file or a folder
// above it. A program anywhere else may have been left by a command that was
// allowed to write there, in another workspace and at another time. Who keeps
// one in a folder of their own names it in their policy.
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

// exists spares the resolving of links for the many folders without the program.
func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func isSetuid(file string) bool {
	fi, err := os.Stat(file)
	return err == nil && fi.Mode()&fs.ModeSetuid != 0
}
