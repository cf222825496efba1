// Package ownfile reads and writes the files that are the user's own: policies,
// and what cloche remembers. Whatever is read comes from one open file, whose
// owner can be asked for; whatever is written replaces the file in one step, and
// lasts.
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

// MaxSize bounds a file; nobody writes a larger one by hand, and reading it
// would be paid for by every command.
const MaxSize = 1 << 20

// A Content is what one open file held: the bytes that are hashed are the
// bytes that are parsed, so a file that is swapped in between cannot pass.
type Content struct {
	Data []byte
	info fs.FileInfo
}

// Read reads a regular file of a sensible size. The open does not block, so a
// FIFO put in the file's place cannot hang the caller.
func Read(path string) (Content, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return Content{}, err
	}
	defer f.Close()
	return read(f)
}

// ErrLeadsOut is the error for a file that is a link out of its folder.
var ErrLeadsOut = errors.New("is a link out of its folder, which could name any file; put the file itself there")

// ReadWithin is Read for a file of a folder that others may fill, such as a project's.
// Links are followed within the folder only.
func ReadWithin(path string) (Content, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return Content{}, err
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.Base(path), os.O_RDONLY|openNonblock, 0)
	if err != nil {
		// os.Root has no error of its own for this. A link that leads within the folder is
		// opened, or is missing.
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

// Sum is the SHA-256 of the content in hexadecimal.
func (c Content) Sum() string { return Sum(c.Data) }

// Sum is the SHA-256 of the data in hexadecimal.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Exposed says why others can change the file; empty if they cannot. Groups
// are not checked: many systems give each user a group of their own, and a
// file mode that lets it write.
func (c Content) Exposed() string {
	if why := ForeignOwner(c.info); why != "" {
		return why
	}
	if WorldWritable(c.info) {
		return "everyone may write it"
	}
	return ""
}

// An ExposedError says that a file which must be the user's own can be changed
// by others.
type ExposedError struct {
	What, Path, Why string
}

// Error names the file and the fix.
func (e *ExposedError) Error() string {
	return fmt.Sprintf("%s %s: %s; own it and run chmod go-w %s", e.What, e.Path, e.Why, e.Path)
}

// Describe says which file an error is about, once.
func Describe(what, path string, err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return fmt.Errorf("%s %s: %w", what, path, err)
}
