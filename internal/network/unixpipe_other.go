//go:build !linux

package network

import (
	"io"
	"net"
)

// pipeUnix carries bytes. Abstract sockets are Linux's alone.
func pipeUnix(to, from *net.UnixConn) int64 {
	n, _ := io.Copy(to, from)
	return n
}
