package supervise

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An unread gives back what the command did not read of a regular file that is its
// standard input. The file is copied into a pipe ahead of the command, and its place
// is shared with the caller: without this, of `while read` over a file the first
// command would take all lines.
type unread struct {
	file   *os.File
	start  int64
	pipe   int        // the end that the command reads, to ask how much is left
	copied chan int64 // how much went into the pipe, once
}

// newUnread returns nil where the file has no place that could be set back.
func newUnread(f, pipe *os.File) *unread {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	start, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil
	}
	fd, err := unix.FcntlInt(pipe.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &unread{file: f, start: start, pipe: fd, copied: make(chan int64, 1)}
}

// giveBack sets the file to where the command stopped reading, when nobody copies any
// more. A file system that does not answer is not waited for.
func (u *unread) giveBack() {
	defer u.close()
	patience := time.NewTimer(writeGrace)
	defer patience.Stop()
	select {
	case n := <-u.copied:
		if left, err := unix.IoctlGetInt(u.pipe, unix.TIOCINQ); err == nil {
			_, _ = u.file.Seek(u.start+n-int64(left), io.SeekStart)
		}
	case <-patience.C:
	}
}

func (u *unread) close() { unix.Close(u.pipe) }
