package review

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// copyEntry makes a copy of a file, link or empty folder under a new name. The copy has the owner, times and
// user attributes of the original, and no set-id bits.
func copyEntry(from int, name string, to int, newName string, unescape bool) (err error) {
	var st unix.Stat_t
	if err := fstatat(from, name, &st); err != nil {
		return err
	}
	switch typeOf(st.Mode) {
	case Folder:
		return unix.Mkdirat(to, newName, 0o700)
	case Link:
		target, err := readLink(from, name)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(target, to, newName); err != nil {
			return err
		}
		return copyOwner(to, newName, &st)
	case File:
	default:
		return fmt.Errorf("a %s cannot be copied", typeOf(st.Mode))
	}
	in, err := openFile(from, name, true)
	if err != nil {
		return err
	}
	defer in.Close()
	fd, err := unix.Openat(to, newName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), newName)
	defer out.Close()
	if unix.IoctlFileClone(fd, int(in.Fd())) != nil { // free, where the file system can
		if err := copySparse(out, in, st.Size); err != nil {
			return err
		}
	}
	_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) // it only begins early what syncFile waits for
	if err := copyOwner(to, newName, &st); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, perm(st.Mode)); err != nil {
		return err
	}
	if err := copyAttributes(fd, int(in.Fd()), unescape); err != nil {
		return err
	}
	return unix.UtimesNanoAt(to, newName, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// chmodNew changes the mode of a file that was just made. Where another command may put a link in its place, that is not followed.
func chmodNew(dir int, name string, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if typeOf(st.Mode) != typeOf(mode) {
		return errChanged
	}
	return unix.Chmod(procName(fd), mode&0o7777)
}

// copyOld copies a file of the host, or an empty folder, to another file system, with its mode as it is, and waits for the disk. Half of an earlier
// copy may be there.
func copyOld(from, to int, name string) error {
	var st unix.Stat_t
	err := fstatat(from, name, &st)
	if err != nil {
		return err
	}
	if err := unlinkAny(to, name); err != nil && !isGone(err) {
		return err
	}
	err = copyEntry(from, name, to, name, false)
	if err == nil && typeOf(st.Mode) == Folder {
		err = copyOwner(to, name, &st)
	}
	if err == nil && typeOf(st.Mode) == File {
		err = syncFile(to, name)
	}
	if err == nil && typeOf(st.Mode) != Link {
		err = chmodNew(to, name, st.Mode)
	}
	if err == nil {
		err = unix.Fsync(to)
	}
	if err != nil {
		_ = unlinkAny(to, name)
	}
	return err
}

// copyOwner gives a file the owner of another one. Only root can give files away; a user keeps the group where it is
// one of the user's.
func copyOwner(dir int, name string, st *unix.Stat_t) error {
	uid := -1
	if os.Geteuid() == 0 {
		uid = int(st.Uid)
	}
	err := unix.Fchownat(dir, name, uid, int(st.Gid), unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.EPERM && uid < 0 {
		return nil
	}
	return err
}

// copySparse copies the data of a file and leaves its holes.
func copySparse(out, in *os.File, size int64) error {
	for at := nextData(in, 0, size); at < size; at = nextData(in, at, size) {
		end, err := unix.Seek(int(in.Fd()), at, unix.SEEK_HOLE)
		if err != nil || end <= at {
			end = size
		}
		for at < end {
			from, to := at, at
			n, err := unix.CopyFileRange(int(in.Fd()), &from, int(out.Fd()), &to, int(min(end-at, 1<<30)), 0)
			if err == unix.ENOSPC || err == unix.EDQUOT || err == unix.EIO {
				return err
			}
			if err != nil || n == 0 {
				m, err := io.Copy(io.NewOffsetWriter(out, at), io.NewSectionReader(in, at, end-at))
				if err != nil {
					return err
				}
				if m < end-at {
					return io.ErrUnexpectedEOF
				}
				n = int(m)
			}
			at += int64(n)
		}
	}
	return out.Truncate(size)
}

// copyAttributes copies the user attributes. Those of overlayfs itself are left out, and what the command named like
// them gets its name back.
func copyAttributes(out, in int, unescape bool) error {
	names := make([]byte, 64<<10)
	n, err := unix.Flistxattr(in, names)
	if err != nil || n == 0 {
		return nil // the file system has none
	}
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		to := name
		if rest, ok := strings.CutPrefix(name, escapedPrefix); ok && unescape {
			to = overlayPrefix + rest
		} else if !strings.HasPrefix(name, "user.") || unescape && strings.HasPrefix(name, overlayPrefix) {
			continue
		}
		n, err := unix.Fgetxattr(in, name, value)
		if err != nil {
			continue // removed meanwhile
		}
		if err := unix.Fsetxattr(out, to, value[:n], 0); err != nil && err != unix.ENOTSUP {
			return fmt.Errorf("set the attribute %s: %w", to, err)
		}
	}
	return nil
}
