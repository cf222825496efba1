//go:build !linux

package host

import (
	"os"
	"path/filepath"
)

// noNamespaces are the facts of a system that has no user namespaces.
var noNamespaces = Namespaces{MaxUser: -1, UnprivilegedClone: -1, AppArmorRestrict: -1}

// realWorkingFolder resolves the symbolic links that $PWD may hold.
func realWorkingFolder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}
