package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

var errNoSeq = errors.New("the line has no number")

// lockTimeout is how long Record waits for another writer. Writing a line takes well under a
// millisecond. A writer that was stopped while it held the lock must not block every later run
// forever.
const lockTimeout = 10 * time.Second

// makeFolder creates the folder if necessary and opens it, with the checks that Dir's comment
// promises.
func makeFolder(path string) (*os.Root, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	root, err := openFolder(path)
	if err != nil {
		return nil, err
	}
	if err := tightenFolder(root); err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// openFolder opens an existing folder that is not a link. It compares the opened folder with
// the one checked before, to detect a link put there in between.
func openFolder(path string) (*os.Root, error) {
	seen, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !seen.IsDir() {
		return nil, fmt.Errorf("%s is a %s; the log is kept only in a real folder, name one", path, typeWord(seen.Mode()))
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	if opened, err := root.Stat("."); err != nil || !os.SameFile(seen, opened) {
		root.Close()
		return nil, fmt.Errorf("%s changed while it was opened", path)
	}
	return root, nil
}

func typeWord(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "folder"
	}
	return "special file"
}

// tightenFolder checks the owner and removes the permissions of others.
func tightenFolder(root *os.Root) error {
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if err := checkOwner(info, root.Name()); err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return root.Chmod(".", 0o700)
}

// openOwned opens a file of the log. It must be a regular file without a second hard link that
// belongs to this user; the permissions of others are removed.
func openOwned(root *os.Root, name string, flag int) (*os.File, error) {
	f, err := openPlain(root, name, flag)
	if err != nil {
		return nil, err
	}
	if err := claim(name, f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// openPlain opens a file of the log, which must be a regular file and no link. It may belong
// to another user, whose log can then only be read.
func openPlain(root *os.Root, name string, flag int) (*os.File, error) {
	f, err := root.OpenFile(name, flag|openNonblock, 0o600)
	if err != nil {
		if seen, lerr := root.Lstat(name); lerr == nil && seen.Mode()&fs.ModeSymlink != 0 {
			return nil, errNotPlain(name, seen.Mode())
		}
		return nil, err
	}
	if err := checkPlain(root, name, f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func errNotPlain(name string, m fs.FileMode) error {
	return fmt.Errorf("%s is a %s, not a plain file; someone put it there, remove it", name, typeWord(m))
}

// checkPlain checks that the opened file is the one at the name, and a regular file.
func checkPlain(root *os.Root, name string, f *os.File) error {
	seen, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if !seen.Mode().IsRegular() {
		return errNotPlain(name, seen.Mode())
	}
	if opened, err := f.Stat(); err != nil || !os.SameFile(seen, opened) {
		return fmt.Errorf("%s changed while it was opened", name)
	}
	return nil
}

// claim checks that a file belongs only to this user, and removes the permissions of others.
func claim(name string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if links(info) > 1 {
		return fmt.Errorf("%s has a second name (hard link) elsewhere; remove that, or move the log away", name)
	}
	if err := checkOwner(info, name); err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return f.Chmod(0o600)
}

// lockFile takes the lock, waiting for others at most lockTimeout.
func lockFile(f *os.File, exclusive bool) error {
	wait := 50 * time.Microsecond
	for deadline := time.Now().Add(lockTimeout); ; wait = min(2*wait, 5*time.Millisecond) {
		got, err := tryLock(f, exclusive)
		if got || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("another process has held it for %v; find it with fuser or lsof", lockTimeout)
		}
		time.Sleep(wait)
	}
}
