package netns

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// C2: the kernel tells which file a unix socket is bound to, also after it was renamed,
// and where something listens, for an ordinary user as well.
func TestOwnSocketsAreListed(t *testing.T) {
	n, err := OpenOwn()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	t.Chdir(t.TempDir()) // the path of a socket is short
	unixListener, err := net.Listen("unix", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer unixListener.Close()
	var st unix.Stat_t
	if err := os.Rename("s", "renamed"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(filepath.Join(".", "renamed"), &st); err != nil {
		t.Fatal(err)
	}
	found := 0
	err = n.Bound(func(b Bound) {
		if b.Inode == uint32(st.Ino) {
			found++
		}
	})
	if err != nil || found == 0 {
		t.Errorf("%d sockets are bound to the file: %v", found, err)
	}
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(tcp.Addr().String())
	if !n.Listens(at) {
		t.Errorf("nothing listens at %s", at)
	}
	tcp.Close()
	if n.Listens(at) {
		t.Errorf("something listens at %s", at)
	}
}
