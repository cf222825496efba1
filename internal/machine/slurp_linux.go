package machine

import (
	"bytes"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"
)

// slurp reads a small file of the system. os.ReadFile offers every file to the
// poller first, which takes longer than reading it, and every start pays.
func slurp(name string) ([]byte, error) {
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	return readAll(fd, name, 1024)
}

// readAll reads an open file to its end, most of which is expected to fit into
// room.
func readAll(fd int, name string, room int) ([]byte, error) {
	if room <= readRoom {
		return readSmall(fd, name)
	}
	return readOn(fd, name, make([]byte, 0, room))
}

// readRoom is what nearly all files of the system fit into.
const readRoom = 8 << 10

var readBuffers = sync.Pool{New: func() any { return new([readRoom]byte) }}

// readSmall reads into a buffer that is used again, and returns a copy: every start
// reads a handful of files.
func readSmall(fd int, name string) ([]byte, error) {
	buffer := readBuffers.Get().(*[readRoom]byte)
	defer readBuffers.Put(buffer)
	text, err := readOn(fd, name, buffer[:0])
	if err != nil || len(text) >= readRoom { // it has moved to a larger place
		return text, err
	}
	return bytes.Clone(text), nil
}

// readOn reads to the end of a file, behind what is in text.
func readOn(fd int, name string, text []byte) ([]byte, error) {
	for {
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, text[len(text):cap(text)]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		if n <= 0 {
			return text, nil
		}
		if text = text[:len(text)+n]; len(text) == cap(text) {
			text = append(text, make([]byte, 3*cap(text))...)[:len(text)]
		}
	}
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
