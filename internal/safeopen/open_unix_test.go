//go:build unix

package safeopen

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// W6: a FIFO, a socket and a device are refused, and none is waited for.
func TestOpenRefusesSpecialFiles(t *testing.T) {
	eachOpener(t, func(t *testing.T, open opener) {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		must(t, err)
		must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
		t.Chdir(dir)
		l, err := net.Listen("unix", "sock")
		must(t, err)
		defer l.Close()
		for path, want := range map[string]fs.FileMode{
			filepath.Join(dir, "fifo"): fs.ModeNamedPipe, filepath.Join(dir, "sock"): fs.ModeSocket, "/dev/null": fs.ModeDevice,
		} {
			for _, flag := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREATE} {
				refusedInTime(t, open, path, flag, want)
			}
		}
	})
}

func refusedInTime(t *testing.T, open opener, path string, flag int, want fs.FileMode) {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		_, err := open(path, flag, 0o644, func(string, bool) error { return nil })
		result <- err
	}()
	select {
	case err := <-result:
		var special *TypeError
		if !errors.As(err, &special) || special.Type&want == 0 || special.Error() == "" {
			t.Errorf("%s with %#x: %v", path, flag, err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s with %#x: still waiting", path, flag)
	}
}

// W6: of the mode only the permission bits reach a new file.
func TestOpenMode(t *testing.T) {
	eachOpener(t, func(t *testing.T, open opener) {
		path := filepath.Join(t.TempDir(), "new")
		f, err := open(path, os.O_WRONLY|os.O_CREATE, 0o755|fs.ModeSetuid, func(string, bool) error { return nil })
		must(t, err)
		defer f.Close()
		if info, err := f.Stat(); err != nil || info.Mode()&fs.ModeSetuid != 0 || info.Mode().Perm()&0o700 == 0 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	})
}
