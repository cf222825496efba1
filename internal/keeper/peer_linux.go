package keeper

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// folder opens the folder of the sockets. It has to be this user's alone.
func folder(dir string) (fd int, err error) {
	if fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return -1, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0) {
		err = errors.New("is open to others; chmod 700 it")
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("folder %s: %w", dir, err)
	}
	return fd, nil
}

// in is a path of a file in an open folder. It has room in the address of a socket, whatever the folder's own path is.
func in(folder int, name string) string {
	return "/proc/self/fd/" + strconv.Itoa(folder) + "/" + name
}

// peerStatus are the lines of a status file that have to be the same at both ends.
var peerStatus = []string{"Uid", "Gid", "NoNewPrivs", "Seccomp", "Seccomp_filters"}

// checkPeer returns the process at the other end of a socket if it is one like this: the same user, the same file of
// cloche, the same namespaces and seccomp filters. A process inherits filters and never loses one, so a confined
// command has more, whatever it executes.
func checkPeer(fd int) (pid int, err error) {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, os.NewSyscallError("getsockopt(SO_PEERCRED)", err)
	}
	if int(peer.Uid) != os.Geteuid() || peer.Pid <= 0 {
		return 0, fmt.Errorf("it is process %d of user %d", peer.Pid, peer.Uid)
	}
	// With this descriptor the pid is certainly still that of the peer, below. Linux has it since 6.5.
	if held, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
		defer func() {
			if n, pollErr := unix.Poll([]unix.PollFd{{Fd: int32(held), Events: unix.POLLIN}}, 0); n != 0 && err == nil {
				pid, err = 0, errors.Join(errors.New("it has ended"), pollErr)
			}
			unix.Close(held)
		}()
	}
	proc := "/proc/" + strconv.Itoa(int(peer.Pid))
	var own, other facts
	if err := errors.Join(own.file("/proc/self/exe"), other.file(proc+"/exe")); err != nil {
		return 0, err
	}
	for _, name := range namespaces {
		a, err := os.Readlink("/proc/self/ns/" + name)
		b, otherErr := os.Readlink(proc + "/ns/" + name)
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without it
		}
		if err := errors.Join(err, otherErr); err != nil {
			return 0, err
		}
		own.text(a)
		other.text(b)
	}
	a, err := slurp("/proc/self/status")
	b, otherErr := slurp(proc + "/status")
	if err := errors.Join(err, otherErr); err != nil {
		return 0, err
	}
	own.text(statusLines(a, peerStatus)...)
	other.text(statusLines(b, peerStatus)...)
	if !slices.Equal(own.Bytes(), other.Bytes()) {
		return 0, fmt.Errorf("process %d is not cloche, or is confined in another way than this", peer.Pid)
	}
	return int(peer.Pid), nil
}
