package ownfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces a file in one step by one that only the owner can read: a reader sees
// the old or the new content, even after a crash.
func Write(path string, data []byte) error {
	if err := replace(path, filepath.Base(path)+".*.tmp", data, (*os.File).Sync); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// replace writes a new file, named by the pattern, and renames it to path. It does not
// write to a link or a file of another user that is there.
func replace(path, pattern string, data []byte, sync func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), pattern) // made with mode 0600
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = sync(f)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
