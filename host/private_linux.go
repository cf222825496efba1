package host

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxPrivate is the most that is read of a file of ours.
const maxPrivate = 64 << 10

// readPrivate reads a small file that only the caller can have written: a
// regular file of the caller's own, not writable by others, in a folder of the
// same kind, and no symbolic link. Anything else is an error.
func readPrivate(file string) ([]byte, error) { return readPrivateUpTo(file, maxPrivate) }

// readPrivateUpTo is readPrivate for files of up to size bytes.
func readPrivateUpTo(file string, size int64) ([]byte, error) {
	if err := checkPrivateFolder(filepath.Dir(file)); err != nil {
		return nil, err
	}
	// Non-blocking, so that a FIFO put there does not hang.
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Open(file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: file, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: file, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > size {
		return nil, fmt.Errorf("%s is not a small regular file", file)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return nil, notAlone(file)
	}
	return readAll(fd, file, int(st.Size)+1)
}

// writePrivate replaces the file as a whole, so that a reader sees the old or
// the new content; what was there, a link or a file of somebody else, is not
// written to. The folder is made for the caller alone.
func writePrivate(file string, data []byte) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := checkPrivateFolder(dir); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".new-*") // made with mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

func checkPrivateFolder(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s is not a folder", dir)
	}
	return checkOwn(dir, fi)
}

func checkOwn(file string, fi fs.FileInfo) error {
	if ownerOf(fi) != os.Geteuid() || fi.Mode().Perm()&0o022 != 0 {
		return notAlone(file)
	}
	return nil
}

func notAlone(file string) error {
	return fmt.Errorf("%s does not belong to uid %d alone", file, os.Geteuid())
}
