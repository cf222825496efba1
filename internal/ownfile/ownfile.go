// Package ownfile reads and writes the user's own files: policies, and what cloche
// remembers. Reading uses one open file, whose owner can be checked. Writing replaces
// the file in one step, and the result survives a crash.
package ownfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// MaxSize bounds a file. Nobody writes a larger one by hand, and every command would
// have to read it.
const MaxSize = 1 << 20

// A Content is the content of one open file. The bytes that are hashed are the bytes
// that are parsed, so replacing the file in between has no effect.
type Content struct {
	Data []byte
	info fs.FileInfo
}

// Read reads a regular file of at most MaxSize bytes. The open does not block, so a
// FIFO in the file's place cannot hang the caller.
func Read(path string) (Content, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return Content{}, err
	}
	defer f.Close()
	return read(f)
}

// ErrLeadsOut is the error for a file that is a link to a path outside its folder.
var ErrLeadsOut = errors.New("is a link out of its folder, which could name any file; put the file itself there")

// ReadWithin is Read for a file in a folder that others may fill, such as a project's.
// It follows only links that stay in the folder.
func ReadWithin(path string) (Content, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return Content{}, err
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.Base(path), os.O_RDONLY|openNonblock, 0)
	if err != nil {
		// os.Root has no error of its own for a link that leaves the folder. A link that stays
		// in it is opened, or its target is missing.
		info, linkErr := root.Lstat(filepath.Base(path))
		if linkErr == nil && info.Mode()&fs.ModeSymlink != 0 && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return Content{}, ErrLeadsOut
		}
		return Content{}, err
	}
	defer f.Close()
	return read(f)
}

func read(f *os.File) (Content, error) {
	info, err := f.Stat()
	if err != nil {
		return Content{}, err
	}
	switch {
	case info.IsDir():
		return Content{}, errors.New("is a folder, not a regular file; name a file")
	case !info.Mode().IsRegular():
		return Content{}, errors.New("not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return Content{}, err
	}
	if len(data) > MaxSize {
		return Content{}, fmt.Errorf("larger than %d bytes", MaxSize)
	}
	return Content{Data: data, info: info}, nil
}

// Sum returns the SHA-256 of the content in hexadecimal.
func (c Content) Sum() string { return Sum(c.Data) }

// Sum returns the SHA-256 of the data in hexadecimal.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Exposed returns why others can change the file, or "" if they cannot. Groups are not
// checked: on many systems each user has a group of their own and files that the group
// may write.
func (c Content) Exposed() string {
	if why := ForeignOwner(c.info); why != "" {
		return why
	}
	if WorldWritable(c.info) {
		return "everyone may write it"
	}
	return ""
}

// An ExposedError says that others can change a file that only the user should be able
// to change.
type ExposedError struct {
	What, Path, Why string
}

// Error names the file and the fix.
func (e *ExposedError) Error() string {
	return fmt.Sprintf("%s %s: %s; own it and run chmod go-w %s", e.What, e.Path, e.Why, e.Path)
}

// Describe says which file an error is about. It removes the path of a *fs.PathError,
// so that the path appears only once.
func Describe(what, path string, err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return fmt.Errorf("%s %s: %w", what, path, err)
}
