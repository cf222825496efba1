package machine

import (
	"path/filepath"
	"strconv"

	"github.com/cloche-dev/cloche/host"
)

// ownDirs are the folders of cloche's own files. Inside of another sandbox the
// usual ones are masked, so that nothing in there can touch the log or the
// configuration outside; what a cloche in there keeps, it keeps in a private
// folder that goes with the sandbox, unless it is told another one.
func ownDirs(home string, uid int, getenv func(string) (string, bool)) host.Dirs {
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
