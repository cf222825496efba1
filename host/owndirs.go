package host

import "os"

// OwnDirs returns the folders of cloche's own files for the caller, without a
// look at the rest of the machine. They are those of a [Snapshot].
func OwnDirs() (Dirs, error) {
	getenv := os.LookupEnv
	id, err := identify(getenv, os.Getuid(), passwdEntry)
	if err != nil {
		return Dirs{}, err
	}
	return dirsFor(id.home, getenv), nil
}
