package gitguard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A folder is read through a descriptor. sub is a path from there, of dots only or one name that
// is known to be a real folder.
type folder struct {
	fd     int
	sub    string
	absent bool // there is no such folder, and nothing in it
}

func (f folder) path(name string) string {
	if f.sub == "" {
		return name
	}
	return f.sub + "/" + name
}

func (f folder) kind(name string) kind {
	if f.absent {
		return missing
	}
	var st unix.Stat_t
	err := unix.Fstatat(f.fd, f.path(name), &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return missing
	case err != nil:
		return unreadable
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return regular
	case unix.S_IFDIR:
		return directory
	case unix.S_IFLNK:
		return link
	}
	return other
}

// read returns the whole content of a regular file. O_NONBLOCK is for pipes, which the check that
// follows refuses.
func (f folder) read(name string) (File, error) {
	fd, err := unix.Openat(f.fd, f.path(name), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return File{}, fmt.Errorf("open %s: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return File{}, fmt.Errorf("look at %s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return File{}, fmt.Errorf("%s is not a regular file", name)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxConfig+1))
	if err != nil {
		return File{}, fmt.Errorf("read %s: %w", name, err)
	}
	if len(content) > maxConfig {
		return File{}, fmt.Errorf("%s is longer than %d bytes", name, maxConfig)
	}
	return File{Content: content, Mode: st.Mode & 0o666, UID: int(st.Uid), GID: int(st.Gid), Modified: time.Unix(st.Mtim.Unix())}, nil
}

// names lists the folder name. It fails for anything but a real folder.
func (f folder) names(name string) ([]string, error) {
	fd, err := unix.Openat(f.fd, f.path(name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	return file.Readdirnames(-1)
}

// owned is a file with the owner of the folder.
func (f folder) owned(content string) (File, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(f.fd, f.path("."), &st, 0); err != nil {
		return File{}, fmt.Errorf("look at the folder: %w", err)
	}
	return File{Content: []byte(content), Mode: 0o644, UID: int(st.Uid), GID: int(st.Gid)}, nil
}

// put writes the file under a temporary name and moves it into place, so that
// git on the host finds the old content or the new one.
func (f File) put() error {
	dir, err := f.open()
	if err != nil {
		return fmt.Errorf("write %s anew: %w", f.Name, err)
	}
	defer unix.Close(dir)
	temporary := f.Name + ".cloche"
	if err := f.write(dir, temporary); err != nil {
		return fmt.Errorf("write %s anew: %w", f.Name, err)
	}
	flags := uint(0)
	if f.Exclusive {
		flags = unix.RENAME_NOREPLACE
	}
	if err := unix.Renameat2(dir, temporary, dir, f.Name, flags); err != nil {
		_ = unix.Unlinkat(dir, temporary, 0)
		return fmt.Errorf("put %s in place: %w", f.Name, err)
	}
	return nil
}

func (f File) open() (int, error) {
	name := f.Folder
	if name == "" {
		name = "."
	}
	return unix.Openat(f.Dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// write makes the file. A file of that name may be left from a run that was
// killed, or be a link that the command put there: it is removed, never opened.
func (f File) write(dir int, name string) error {
	if err := unix.Unlinkat(dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), name)
	_, err = file.Write(f.Content)
	err = errors.Join(err, f.own(fd), unix.Fchmod(fd, f.Mode), file.Close(), f.date(dir, name))
	if err != nil {
		_ = unix.Unlinkat(dir, name, 0)
	}
	return err
}

// date gives the file the time of the one that it replaces.
func (f File) date(dir int, name string) error {
	if f.Modified.IsZero() {
		return nil
	}
	modified := unix.NsecToTimespec(f.Modified.UnixNano())
	return unix.UtimesNanoAt(dir, name, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, modified}, unix.AT_SYMLINK_NOFOLLOW)
}

// own gives the file to the owner of the one that it replaces. Only root can
// do that, and only root has to: for others the two are the same.
func (f File) own(fd int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return unix.Fchown(fd, f.UID, f.GID)
}
