//go:build unix

package testbus

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// config lets everybody on the bus do everything: what is refused in a test is
// refused by somebody else.
const config = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>ADDRESS</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
`

// A Daemon is a bus that ends with the test.
type Daemon struct {
	// Dir is the folder of its socket, which is a XDG_RUNTIME_DIR, too. It has a
	// short name: the path of a socket has at most 108 bytes.
	Dir string
	// Address is the bus's.
	Address string
}

// Start starts a bus on the socket "bus" of a new folder.
func Start(t testing.TB) *Daemon {
	t.Helper()
	testenv.Need(t, "dbus")
	dir, err := os.MkdirTemp("/tmp", "cl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return StartAt(t, dir, "unix:path="+filepath.Join(dir, "bus"))
}

// StartAt starts a bus on an address, whose files lie in the folder.
func StartAt(t testing.TB, dir, address string) *Daemon {
	t.Helper()
	file := filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(file, bytes.ReplaceAll([]byte(config), []byte("ADDRESS"), []byte(address)), 0o600); err != nil {
		t.Fatal(err)
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	var said bytes.Buffer
	cmd := exec.Command("dbus-daemon", "--config-file="+file, "--nofork", "--nopidfile", "--print-address=3")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs}, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_ = ready.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := ready.Read(make([]byte, 1)); n != 1 {
		t.Fatalf("dbus-daemon does not start: %v", err)
	}
	return &Daemon{Dir: dir, Address: address}
}
