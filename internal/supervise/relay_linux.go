package supervise

import (
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A relay carries bytes from a pipe of the caller to the command. The pipe itself must not be
// passed on: through /proc/self/fd, the command could open its reading end for writing. The
// next reader of the pipe, for example a shell that reads its commands from it, would take
// what the command wrote for the caller's input.
//
// A plain copy that reads ahead would take bytes that the command never reads and that are
// meant for the next reader. So the command's pipe is made one page large. tee(2) duplicates
// bytes into it without taking them from the caller's pipe. Only as many bytes as the command
// has read are then taken. For a command that reads a lot, the pipe is made larger: the kernel
// reports when one page of it is free, not when all are, so the relay then has to poll. If
// tee(2) is denied, for example by a seccomp filter around cloche, bytes are copied, and what
// the command does not read is lost for other readers.
type relay struct {
	in, out, stop, null int
	room                int // the size of the command's pipe in bytes
	brought             int // bytes that the command has read so far
	copies              bool
	done                chan struct{}
}

const (
	// manyPages is the number of pages after which the pipe is made larger, and its new size.
	manyPages = 16
	// shortNap and longNap are the shortest and the longest time between two polls.
	shortNap, longNap = 20 * time.Microsecond, 20 * time.Millisecond
)

// newRelay returns the relay for a pipe, and the end of it that is for the command.
func newRelay(from *os.File) (*relay, *os.File, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	r, theirs := &relay{in: -1, out: p[1], stop: -1, null: -1, done: make(chan struct{})}, os.NewFile(uintptr(p[0]), "pipe")
	if err := r.open(from); err != nil {
		theirs.Close()
		r.close()
		return nil, nil, err
	}
	return r, theirs, nil
}

func (r *relay) open(from *os.File) (err error) {
	if r.room, err = unix.FcntlInt(uintptr(r.out), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		return os.NewSyscallError("fcntl(F_SETPIPE_SZ)", err)
	}
	if r.in, err = duplicateFD(from); err != nil {
		return err
	}
	if r.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	r.null, err = unix.Open(os.DevNull, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	return os.NewSyscallError("open the null device", err)
}

// close releases a relay that was never run.
func (r *relay) close() {
	for _, fd := range []int{r.in, r.out, r.stop, r.null} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// end stops the relay. It returns when the bytes that the command has read are taken from the
// caller's pipe.
func (r *relay) end() {
	_, _ = unix.Write(r.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-r.done
	unix.Close(r.stop)
}

func (r *relay) run() {
	defer close(r.done)
	for r.page() {
	}
	for _, fd := range []int{r.in, r.out, r.null} {
		unix.Close(fd)
	}
}

// page brings as many bytes to the command's pipe, which is empty, as fit, and reports whether
// there may be more.
func (r *relay) page() bool {
	if !r.await(r.in, unix.POLLIN) {
		return false
	}
	if r.copies {
		return r.copy()
	}
	n, err := unix.Tee(r.in, r.out, r.room, unix.SPLICE_F_NONBLOCK)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return true // another reader was faster
	case err != nil && err != unix.EPIPE:
		r.copies = true
		return true
	case err != nil || n == 0:
		return false
	}
	left, goesOn := r.read(int(n))
	r.take(int(n) - left)
	r.grow(int(n) - left)
	return goesOn
}

// copy copies up to a page. The command's pipe has room for a page when it is writable.
func (r *relay) copy() bool {
	if !r.await(r.out, unix.POLLOUT) {
		return false
	}
	buf := make([]byte, os.Getpagesize())
	n, err := unix.Read(r.in, buf)
	if err == unix.EAGAIN || err == unix.EINTR {
		return true
	}
	if err != nil || n == 0 {
		return false
	}
	_, err = unix.Write(r.out, buf[:n])
	return err == nil
}

// read waits until the command has read the n bytes in its pipe. It returns how many are left
// if the command stops reading or the relay is ended.
func (r *relay) read(n int) (left int, goesOn bool) {
	goesOn = r.await(r.out, unix.POLLOUT)
	nap, before := shortNap, n
	for {
		left, err := unix.IoctlGetInt(r.out, unix.TIOCINQ)
		if err != nil {
			return n, false
		}
		if left == 0 || !goesOn {
			return left, goesOn
		}
		if nap = min(2*nap, longNap); left < before {
			nap, before = shortNap, left
		}
		goesOn = r.nap(nap)
	}
}

// grow makes the command's pipe larger once the command has read a lot.
func (r *relay) grow(n int) {
	most := manyPages * os.Getpagesize()
	if r.brought += n; r.brought < most || r.room >= most {
		return
	}
	if room, err := unix.FcntlInt(uintptr(r.out), unix.F_SETPIPE_SZ, most); err == nil {
		r.room = room
	}
}

// nap waits for some time. It returns false in the same cases as await.
func (r *relay) nap(d time.Duration) bool {
	p := []unix.PollFd{{Fd: int32(r.out)}, {Fd: int32(r.stop), Events: unix.POLLIN}}
	t := unix.NsecToTimespec(int64(d))
	n, err := unix.Ppoll(p, &t, nil)
	return n == 0 || err == unix.EINTR
}

// await waits until fd is ready. It returns false if nobody reads from the command's end any
// more, or if end was called.
func (r *relay) await(fd int, events int16) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}, {Fd: int32(r.out)}, {Fd: int32(r.stop), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(p, -1); err != nil && err != unix.EINTR {
			return false
		}
		switch {
		case p[1].Revents != 0, p[2].Revents != 0:
			return false
		case p[0].Revents != 0:
			return true
		}
	}
}

// take removes n bytes from the caller's pipe. It does not wait for bytes that another reader
// has taken meanwhile.
func (r *relay) take(n int) {
	for n > 0 {
		done, err := unix.Splice(r.in, nil, r.null, nil, n, unix.SPLICE_F_NONBLOCK)
		if err == unix.EINTR {
			continue
		}
		if err != nil || done <= 0 {
			return
		}
		n -= int(done)
	}
}

// duplicateFD returns a new descriptor for the same open file. It does not use File.Fd, which
// would make the caller's own reads and writes blocking.
func duplicateFD(f *os.File) (fd int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	var dupErr error
	err = conn.Control(func(from uintptr) {
		fd, dupErr = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 3)
	})
	if err != nil {
		return -1, err
	}
	return fd, os.NewSyscallError("dup", dupErr)
}

// duplicate returns a file that stays open when the original is closed. Its descriptor is
// never that of a standard stream: the Go runtime ends the program on a write to a standard
// stream whose reader has closed it.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := duplicateFD(f)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// reopens reports whether the file is a pipe, whose other end a command could open through
// /proc/self/fd.
func reopens(mode fs.FileMode) bool { return mode&fs.ModeNamedPipe != 0 }

// harmlessDevice reports whether the command may have a device and reopen it: a terminal,
// which the command then uses, or null, zero, full, random and urandom.
func harmlessDevice(f *os.File, info fs.FileInfo) bool {
	const memory = 1
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	if unix.Major(stat.Rdev) != memory {
		return isTerminal(f)
	}
	switch unix.Minor(stat.Rdev) {
	case 3, 5, 7, 8, 9:
		return true
	}
	return false
}

// An unread resets the offset of a regular file that is the command's standard input to where
// the command stopped reading. The file is copied into a pipe ahead of the command, and its
// offset is shared with the caller. Without this, the first command in a shell's `while read`
// loop over the file would consume all lines.
type unread struct {
	file   *os.File
	start  int64
	pipe   int        // the end that the command reads; it tells how much is left
	copied chan int64 // receives once how much went into the pipe
}

// newUnread returns nil if the file has no offset that could be reset.
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

// giveBack sets the file's offset to where the command stopped reading, after copying has
// ended. If a file system does not answer in time, it gives up.
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
