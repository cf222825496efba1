package cli

import (
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A ttyConsole is the terminal of the session that cloche runs in, for a command
// that has none: its input is a file or a pipe, and nobody else waits for keys. The
// command cannot reach it, since it has a session of its own.
type ttyConsole struct {
	file  *os.File
	saved unix.Termios
}

// openConsole returns nil where there is no such terminal, or where it is not ours
// now: to change it from the background would stop this process.
func openConsole() *ttyConsole {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	fd := int(f.Fd())
	saved, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	front, pgrpErr := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || pgrpErr != nil || front != unix.Getpgrp() {
		f.Close()
		return nil
	}
	state := *saved
	// Keys come one by one and mean nothing by themselves: Ctrl-C is an answer.
	state.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG | unix.IEXTEN
	state.Cc[unix.VMIN], state.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(fd, unix.TCSETSW, &state) != nil {
		f.Close()
		return nil
	}
	return &ttyConsole{file: f, saved: *saved}
}

// Write prints to the terminal.
func (t *ttyConsole) Write(b []byte) (int, error) { return t.file.Write(b) }

// keyPoll is how often Key looks whether it is still wanted.
const keyPoll = 50 * time.Millisecond

// Key waits for a key.
func (t *ttyConsole) Key(ctx context.Context) (byte, error) {
	fds := []unix.PollFd{{Fd: int32(t.file.Fd()), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		n, err := unix.Poll(fds, int(keyPoll.Milliseconds()))
		switch {
		case err == unix.EINTR || err == nil && n == 0:
			continue
		case err != nil || fds[0].Revents&unix.POLLIN == 0:
			return 0, io.EOF
		}
		var b [1]byte
		if n, err := unix.Read(int(t.file.Fd()), b[:]); err == nil && n == 1 {
			return b[0], nil
		} else if err != unix.EINTR && err != unix.EAGAIN {
			return 0, io.EOF
		}
	}
	return 0, ctx.Err()
}

// Release gives the terminal back as it was.
func (t *ttyConsole) Release() {
	_ = unix.IoctlSetTermios(int(t.file.Fd()), unix.TCSETSW, &t.saved)
	t.file.Close()
}
