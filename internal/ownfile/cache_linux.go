package ownfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ReadCache reads a file of up to max bytes that only the caller can have written: a regular
// file of the caller, not writable by others and not a symbolic link, in a folder of which
// the same is true. Anything else is an error.
func ReadCache(file string, max int64) ([]byte, error) {
	if err := checkFolder(filepath.Dir(file)); err != nil {
		return nil, err
	}
	data, st, err := readRegular(file, max)
	if err == nil && (int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0) {
		return nil, notAlone(file)
	}
	return data, err
}

// ReadRegular reads a regular file of up to max bytes that anybody may have created. It does
// not follow a link at the end of the path, and does not wait for a pipe.
func ReadRegular(file string, max int64) ([]byte, error) {
	data, _, err := readRegular(file, max)
	return data, err
}

func readRegular(file string, max int64) (data []byte, st syscall.Stat_t, err error) {
	fd, err := open(file)
	if err != nil {
		return nil, st, &fs.PathError{Op: "open", Path: file, Err: err}
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := syscall.Fstat(fd, &st); err != nil {
		return nil, st, &fs.PathError{Op: "stat", Path: file, Err: err}
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG || st.Size > max {
		return nil, st, fmt.Errorf("%s is not a small regular file", file)
	}
	data, err = readAll(fd, file, st.Size)
	return data, st, err
}

// open does not block, so that a FIFO in the file's place cannot hang the caller.
func open(file string) (int, error) {
	for {
		fd, err := syscall.Open(file, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// readAll reads a file of size bytes. Its size does not change: such files are
// replaced, never written to.
func readAll(fd int, file string, size int64) ([]byte, error) {
	text := make([]byte, size)
	for done := 0; done < len(text); {
		n, err := syscall.Read(fd, text[done:])
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: file, Err: err}
		case n == 0:
			return text[:done], nil
		default:
			done += n
		}
	}
	return text, nil
}

// WriteCache replaces a file for ReadCache. A reader sees the old or the new content;
// after a crash of the machine the file may be lost. If the folder is missing, it is
// created for the caller alone.
func WriteCache(file string, data []byte) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := checkFolder(dir); err != nil {
		return err
	}
	removeLeft(dir)
	return replace(file, newName+"*", data, func(*os.File) error { return nil })
}

// newName is the prefix of temporary files.
const newName = ".new-"

// left is the age after which a temporary file is no longer in use.
const left = time.Hour

// removeLeft removes temporary files of writers that were killed. Errors are ignored: the
// next call tries again.
func removeLeft(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), newName) || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > left {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

func checkFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", dir)
	}
	if !Own(info) || info.Mode().Perm()&0o022 != 0 {
		return notAlone(dir)
	}
	return nil
}

func notAlone(file string) error {
	return fmt.Errorf("%s does not belong to uid %d alone", file, os.Geteuid())
}
