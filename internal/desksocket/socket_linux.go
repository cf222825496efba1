package desksocket

import (
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// socketName is the name of the socket for the short time in which it has one.
// Afterwards the link of its descriptor still contains the name, and is found by it.
const socketName = "cloche-desk"

const deleted = " (deleted)"

// listen makes a listening socket without a name, and a descriptor by which other
// processes can find it.
func listen() (*net.UnixListener, func(), error) {
	dir, err := os.MkdirTemp(runtimeFolder(), "cloche-")
	if err != nil {
		return nil, nil, err
	}
	defer os.Remove(dir)
	path := filepath.Join(dir, socketName)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	l.SetUnlinkOnClose(false)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	os.Remove(path)
	if err != nil {
		l.Close()
		return nil, nil, fmt.Errorf("open %s: %w", path, err)
	}
	return l, func() { unix.Close(fd) }, nil
}

// runtimeFolder returns a folder for files that need not survive a reboot.
func runtimeFolder() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return os.TempDir()
}

// addresses returns the sockets of the user's processes, as the links of their
// descriptors. Sockets of confined commands are left out: such a command could show a
// person a harmless request with the id of another one.
func addresses() ([]string, error) {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	own := filters("self")
	var found []string
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		folder := filepath.Join("/proc", p.Name(), "fd")
		descriptors, err := os.ReadDir(folder) // fails for processes of other users
		if err != nil {
			continue
		}
		for _, d := range descriptors {
			link := filepath.Join(folder, d.Name())
			if target, err := os.Readlink(link); err == nil && strings.HasSuffix(target, "/"+socketName+deleted) && filters(p.Name()) <= own {
				found = append(found, link)
			}
		}
	}
	return found, nil
}

// filters returns the number of seccomp filters of a process. A process inherits
// filters, can add some, and never loses one. So every confined command has at least
// one more than the process that started it. Before Linux 5.9 the result is only the
// seccomp mode: 0 if there is no filter.
func filters(process string) int {
	text, err := os.ReadFile(filepath.Join("/proc", process, "status"))
	if err != nil {
		return math.MaxInt
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "Seccomp" && name != "Seccomp_filters" {
			continue
		}
		if n, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
			return math.MaxInt
		}
	}
	return n
}

// owner returns an error for a peer that is neither this user nor root. Root can read
// the user's memory anyway.
func owner(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var got error
	if err := raw.Control(func(fd uintptr) { peer, got = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if got != nil {
		return got
	}
	if int(peer.Uid) != os.Geteuid() && peer.Uid != 0 {
		return fmt.Errorf("user %d may not decide", peer.Uid)
	}
	return nil
}
