package console

import (
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A TTY is the terminal of this process while it is used for a question.
type TTY struct {
	file  *os.File
	wake  int // a descriptor that is readable when the question is withdrawn; -1 means none
	saved *unix.Termios
}

// Open takes over the terminal of this process's session. It returns nil if there is
// none, or if this process is in the background: changing the terminal would stop it
// then.
func Open() *TTY {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	saved, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	front, pgrpErr := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	if err == nil && pgrpErr == nil && front == unix.Getpgrp() {
		if t, err := Take(f, saved, -1); err == nil {
			t.saved = saved
			return t
		}
	}
	f.Close()
	return nil
}

// Take takes over a terminal that is in the foreground. The file stays the caller's.
func Take(f *os.File, state *unix.Termios, wake int) (*TTY, error) {
	s := *state
	// Bytes arrive one by one and have no special meaning: Ctrl-C is an answer. The other
	// flags are set because a command that had the terminal may have changed them.
	s.Iflag = s.Iflag&^(unix.IGNCR|unix.INLCR|unix.ISTRIP|unix.IUCLC|unix.IXOFF) | unix.ICRNL
	s.Oflag = s.Oflag&^(unix.OLCUC|unix.OCRNL|unix.ONOCR|unix.ONLRET) | unix.OPOST | unix.ONLCR
	s.Lflag &^= unix.ICANON | unix.ECHO | unix.ECHONL | unix.ISIG | unix.IEXTEN | unix.XCASE
	s.Cflag = s.Cflag&^unix.CSIZE | unix.CS8
	s.Cc[unix.VMIN], s.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETSW, &s); err != nil {
		return nil, os.NewSyscallError("tcsetattr", err)
	}
	return &TTY{file: f, wake: wake}, nil
}

// ReadsLines reports whether a terminal reads whole lines. A program that fills the
// screen, or edits lines itself, switches that off.
func ReadsLines(f *os.File) bool {
	state, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && state.Lflag&unix.ICANON != 0
}

// Write prints to the terminal.
func (t *TTY) Write(b []byte) (int, error) { return t.file.Write(b) }

// keyPoll is how often Key checks whether the question was withdrawn.
const keyPoll = 50 * time.Millisecond

// Key waits for a byte of input.
func (t *TTY) Key(ctx context.Context) (byte, error) {
	fds := []unix.PollFd{{Fd: int32(t.wake), Events: unix.POLLIN}, {Fd: int32(t.file.Fd()), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		_, err := unix.Poll(fds, int(keyPoll.Milliseconds()))
		switch {
		case err == unix.EINTR || err == nil && fds[0].Revents == 0 && fds[1].Revents == 0:
			continue
		case err != nil || fds[0].Revents != 0 || fds[1].Revents&unix.POLLIN == 0:
			return 0, io.EOF
		}
		var b [1]byte
		n, err := unix.Read(int(t.file.Fd()), b[:])
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		default:
			return b[0], nil
		}
	}
	return 0, ctx.Err()
}

// Release restores the settings of a terminal that [Open] took over.
func (t *TTY) Release() {
	if t.saved != nil {
		_ = unix.IoctlSetTermios(int(t.file.Fd()), unix.TCSETSW, t.saved)
		t.file.Close()
	}
}
