package host

import (
	"os"
	"slices"
	"strings"
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
