package review

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// removeAll removes a tree of the store. Unlike os.RemoveAll it removes folders whose mode
// forbids it (overlayfs' own has mode 000, and a command can make more), and trees that are deeper than a path can be long.
func removeAll(path string) error {
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	parent, name := filepath.Split(path)
	dir, err := unix.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: parent, Err: err}
	}
	defer unix.Close(dir)
	rm := remover{top: dir}
	if err := rm.remove(dir, name, 0); err != nil {
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	for n := 0; n < rm.moved; n++ {
		if err := rm.remove(dir, rm.name(n), 0); err != nil {
			return &fs.PathError{Op: "remove", Path: path, Err: err}
		}
	}
	return nil
}

// A remover removes trees below an open folder. It moves what is too deep up to this folder, so that
// it never has more than maxDeep folders open.
type remover struct {
	top   int
	moved int
}

const maxDeep = 64

func (rm *remover) name(n int) string { return ".removed-" + strconv.Itoa(n) }

func (rm *remover) remove(dir int, name string, depth int) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err == nil {
		return nil
	}
	if depth == maxDeep {
		rm.moved++
		return unix.Renameat2(dir, name, rm.top, rm.name(rm.moved-1), 0)
	}
	fd, err := openOwnDir(dir, name)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	for {
		names, err := f.Readdirnames(1024)
		for _, n := range names {
			if err := rm.remove(fd, n, depth+1); err != nil {
				return err
			}
		}
		if err != nil || len(names) == 0 {
			break
		}
		// What was removed shifts the rest on some file systems.
		if _, err := f.Seek(0, 0); err != nil {
			return err
		}
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

// openOwnDir opens a folder of the store to change what is in it, whatever its mode.
func openOwnDir(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	p, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(p)
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(p), 0o700); err != nil {
		return -1, err
	}
	return unix.Openat(dir, name, flags, 0)
}
