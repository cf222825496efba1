package bus

import (
	"net"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testbus"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// A9: the proxy listens when Start returns, goes on listening where its socket is
// held and removed, and is gone after Close.
func TestProxy(t *testing.T) {
	testenv.AlsoAsAccount(t)
	d := testbus.Start(t)
	p, err := Reserve(d.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context(), "/usr/bin/xdg-dbus-proxy", &plan.Bus{Address: d.Address}); err != nil {
		t.Fatal(err)
	}
	held, err := unix.Open(p.Socket(), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	done := make(chan struct{})
	p.EndWith(done)
	if left, _ := filepath.Glob(d.Dir + "/" + folderPrefix + "*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	address := "/proc/self/fd/" + strconv.Itoa(held)
	c, err := net.Dial("unix", address)
	if err != nil {
		t.Fatalf("the proxy that was let go of does not answer: %v", err)
	}
	c.Close()
	if !p.Alive() {
		t.Error("the proxy is gone")
	}
	close(done)
	testenv.Eventually(t, "the proxy ends with its sandbox", func() bool { return !p.Alive() })
	p.Close()
	if c, err := net.Dial("unix", address); err == nil {
		c.Close()
		t.Error("the proxy still answers")
	}
}
