package verify

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Prober is the inside: it reads what to try, tries it, and writes how it went.
// It decides nothing.
func Prober(in io.Reader, out io.Writer) error {
	var req request
	if err := json.NewDecoder(in).Decode(&req); err != nil {
		return fmt.Errorf("the prober cannot read what to try: %w; it is started by Session.Verify", err)
	}
	p := prober{token: req.Token}
	answers := make([]answer, len(req.Attempts))
	for i, a := range req.Attempts {
		answers[i] = p.try(a)
	}
	return json.NewEncoder(out).Encode(answers)
}

// digest is the salted hash that stands for a content or a value.
func digest(token string, data []byte) []byte {
	sum := sha256.Sum256(append([]byte(token+"\x00"), data...))
	return sum[:]
}

type prober struct {
	token string
}

func (p prober) try(a attempt) answer {
	for _, group := range []func(attempt) (answer, bool){p.tryFile, p.tryNetwork, p.tryProcess, p.tryKernel} {
		if got, known := group(a); known {
			return got
		}
	}
	return answer{Errno: unix.ENOSYS}
}

// failed is the answer for an error, which a system call gave.
func failed(err error) answer {
	if err == nil {
		return answer{}
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		errno = unix.EIO
	}
	return answer{Errno: errno}
}

// tryFile makes one attempt at a path.
func (p prober) tryFile(a attempt) (answer, bool) {
	path := string(a.Path)
	switch a.Do {
	case "read":
		return p.read(path), true
	case "open":
		return open(path, unix.O_RDONLY), true
	case "write":
		return write(path), true
	case "create":
		return open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL), true
	case "mkdir":
		return failed(unix.Mkdir(path, 0o700)), true
	case "move":
		return move(path, string(a.To)), true
	case "readlink":
		target, err := os.Readlink(path)
		got := failed(err)
		got.Data = []byte(target)
		return got, true
	case "chmod":
		return failed(unix.Chmod(path, uint32(a.N))), true
	}
	return answer{}, false
}

// openFlags keep an attempt from waiting for the other end of a pipe and from
// getting a terminal.
const openFlags = unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY

// open opens a path and closes it again.
func open(path string, flags int) answer {
	fd, err := unix.Open(path, flags|openFlags, 0o600)
	if err != nil {
		return failed(err)
	}
	defer unix.Close(fd)
	return identity(fd)
}

func identity(fd int) answer {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	got := failed(err)
	got.Dev, got.Ino = st.Dev, st.Ino
	return got
}

// write opens a file for writing. A program that runs cannot be opened so by
// anybody; whether its mount is read-only can be asked for.
func write(path string) answer {
	got := open(path, unix.O_WRONLY)
	if got.Errno == unix.ETXTBSY {
		if err := unix.Access(path, unix.W_OK); err != nil {
			return failed(err)
		}
	}
	return got
}

// maxRead is how much of a file is read, maxNames how many names of a folder.
const (
	maxRead  = 64 << 10
	maxNames = 1000
)

// read reads a file, or lists a folder. Only a hash of what a file holds is told.
func (p prober) read(path string) answer {
	fd, err := unix.Open(path, unix.O_RDONLY|openFlags, 0)
	if err != nil {
		return failed(err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return list(f)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return failed(err)
	}
	got := identity(fd)
	got.N, got.Data = int64(len(data)), digest(p.token, data)
	return got
}

func list(f *os.File) answer {
	names, err := f.Readdirnames(maxNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return failed(err)
	}
	got := identity(int(f.Fd()))
	for _, n := range names {
		got.Names = append(got.Names, []byte(n))
	}
	return got
}

// move moves a file aside and, if that worked, back at once.
func move(from, to string) answer {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err != nil {
		return failed(err)
	}
	// If this does not work, the outside moves it back.
	_ = unix.Renameat2(unix.AT_FDCWD, to, unix.AT_FDCWD, from, unix.RENAME_NOREPLACE)
	return answer{}
}
