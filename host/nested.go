package host

import (
	"path/filepath"
	"strconv"
)

// InForceFile is where a sandbox of cloche shows its own policy to the commands
// in it, for people and for a cloche that is run inside.
const InForceFile = "/run/cloche/policy"

// ownDirs are the folders of cloche's own files. Inside of another sandbox the
// usual ones are masked, so that nothing in there can touch the log or the
// configuration outside; what a cloche in there keeps, it keeps in a private
// folder that goes with the sandbox, unless it is told another one.
func ownDirs(home string, uid int, getenv func(string) (string, bool)) Dirs {
	d := dirsFor(home, getenv)
	if !Nested() {
		return d
	}
	own := filepath.Join("/tmp", "cloche-"+strconv.Itoa(uid))
	if _, told := getenv("XDG_STATE_HOME"); !told {
		d.State = filepath.Join(own, "state")
	}
	if _, told := getenv("XDG_CACHE_HOME"); !told {
		d.Cache = filepath.Join(own, "cache")
	}
	return d
}
