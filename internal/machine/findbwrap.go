package machine

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
)

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
