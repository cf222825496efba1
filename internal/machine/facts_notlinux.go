//go:build !linux

package machine

import (
	"os"
	"path/filepath"

	"github.com/cloche-dev/cloche/host"
)

// noNamespaces are the facts of a system that has no user namespaces.
var noNamespaces = host.Namespaces{MaxUser: -1, UnprivilegedClone: -1, AppArmorRestrict: -1}

// realWorkingFolder resolves the symbolic links that $PWD may hold.
func realWorkingFolder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}
