package machine

import (
	"os"

	"github.com/cloche-dev/cloche/host"
)

// OwnDirs returns the folders of cloche's own files for the caller, without a
// look at the rest of the machine. They are those of a [Snapshot].
func OwnDirs() (host.Dirs, error) {
	getenv := os.LookupEnv
	if home := homeFrom(getenv); home != "" {
		return ownDirs(home, os.Getuid(), getenv), nil
	}
	id, err := identify(getenv, os.Getuid(), newUserDB().entry)
	if err != nil {
		return host.Dirs{}, err
	}
	return ownDirs(id.home, os.Getuid(), getenv), nil
}
