package audit

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// openNonblock is nothing where no FIFO lives in the file system.
const openNonblock = 0

// lockAt is the byte that is locked. Locks are mandatory here, so it lies far
// behind the contents, which others go on reading.
const lockAt = 1 << 30

// links is not asked for here: an open file cannot be removed, and the folder's
// access list decides who may make a second name.
func links(fs.FileInfo) uint64 { return 1 }

// checkOwner leaves the owner to the access list that the folder inherits.
func checkOwner(fs.FileInfo, string) error { return nil }

func tryLock(f *os.File, exclusive bool) (bool, error) {
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{Offset: lockAt})
	if err == windows.ERROR_LOCK_VIOLATION || err == windows.ERROR_IO_PENDING {
		return false, nil
	}
	return err == nil, err
}

func unlockFile(f *os.File) {
	windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &windows.Overlapped{Offset: lockAt})
}
