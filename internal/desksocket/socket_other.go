//go:build !linux

package desksocket

import (
	"net"
	"os"
	"path/filepath"
)

// listen makes the socket in an owner-only folder of its own, which is removed
// with it. Elsewhere than on Linux a socket needs a name for as long as it is
// used; a killed process leaves it behind until the system clears that folder.
func listen() (*net.UnixListener, func(), error) {
	dir, err := os.MkdirTemp("", "cloche-desk-")
	if err != nil {
		return nil, nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unix"})
	if err != nil {
		os.Remove(dir)
		return nil, nil, err
	}
	return l, func() { os.RemoveAll(dir) }, nil
}

// addresses are the sockets in such folders that anybody answers at.
func addresses() ([]string, error) {
	return filepath.Glob(filepath.Join(os.TempDir(), "cloche-desk-*", "socket"))
}

// owner trusts the folder's mode: only its owner can get to the socket.
func owner(*net.UnixConn) error { return nil }
