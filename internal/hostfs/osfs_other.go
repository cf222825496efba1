//go:build !linux

package hostfs

import (
	"io/fs"
	"os"
)

// Lstat implements FS.
func (OS) Lstat(p string) (Info, error) {
	fi, err := os.Lstat(p)
	if err != nil {
		return Info{}, err
	}
	info := Info{Kind: kindOf(fi.Mode()), Mode: fi.Mode().Perm(), UID: Owner(fi)}
	if info.Kind == Symlink {
		if info.Target, err = os.Readlink(p); err != nil {
			return Info{}, err
		}
	}
	return info, nil
}

func kindOf(m fs.FileMode) Kind {
	switch m.Type() {
	case 0:
		return File
	case fs.ModeDir:
		return Dir
	case fs.ModeSymlink:
		return Symlink
	case fs.ModeSocket:
		return Socket
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		return Device
	default:
		return Other
	}
}
