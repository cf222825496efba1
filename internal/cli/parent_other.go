//go:build !linux

package cli

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"time"
)

// watchParent returns a function that waits until the parent has ended, and reports
// whether it has; stop makes it return. A process whose parent has ended has another
// one, but on Windows.
func watchParent() (ended func() bool, stop func(), err error) {
	if runtime.GOOS == "windows" {
		return nil, nil, errors.New("not available on Windows; leave the option out")
	}
	pid := os.Getppid()
	stopped := make(chan struct{})
	ended = func() bool {
		for os.Getppid() == pid {
			select {
			case <-stopped:
				return false
			case <-time.After(200 * time.Millisecond):
			}
		}
		return true
	}
	return ended, sync.OnceFunc(func() { close(stopped) }), nil
}
