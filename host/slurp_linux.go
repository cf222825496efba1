package host

import (
	"io/fs"

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
	text := make([]byte, 0, room)
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
