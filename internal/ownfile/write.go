package ownfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces a file with an owner-only one in one step: a reader sees
// the old content or the new one, also after a crash.
func Write(path string, data []byte) error {
	if err := replace(path, filepath.Base(path)+".*.tmp", data, (*os.File).Sync); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// replace writes a new file, whose name has the pattern, and gives it the name of the old
// one. What was there, a link or a file of somebody else, is not written to.
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
