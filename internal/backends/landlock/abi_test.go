package landlock

import (
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/policy"
)

// W3: what each ABI brings, as the kernel's documentation lists it.
func TestHandled(t *testing.T) {
	first := "execute|write_file|read_file|read_dir|remove_dir|remove_file|make_char|make_dir|make_reg|make_sock|make_fifo|make_block|make_sym"
	for _, tt := range []struct {
		abi             int
		fs, net, scoped string
	}{
		{1, first, "none", "none"},
		{2, first + "|refer", "none", "none"},
		{3, first + "|refer|truncate", "none", "none"},
		{4, first + "|refer|truncate", "bind_tcp|connect_tcp", "none"},
		{5, first + "|refer|truncate|ioctl_dev", "bind_tcp|connect_tcp", "none"},
		{6, first + "|refer|truncate|ioctl_dev", "bind_tcp|connect_tcp", "abstract_unix_socket|signal"},
		{7, first + "|refer|truncate|ioctl_dev", "bind_tcp|connect_tcp", "abstract_unix_socket|signal"},
		{8, first + "|refer|truncate|ioctl_dev", "bind_tcp|connect_tcp", "abstract_unix_socket|signal"},
		{9, first + "|refer|truncate|ioctl_dev|resolve_unix", "bind_tcp|connect_tcp", "abstract_unix_socket|signal"},
		{10, first + "|refer|truncate|ioctl_dev|resolve_unix", "bind_tcp|connect_tcp|bind_udp|connect_send_udp", "abstract_unix_socket|signal"},
		{99, first + "|refer|truncate|ioctl_dev|resolve_unix", "bind_tcp|connect_tcp|bind_udp|connect_send_udp", "abstract_unix_socket|signal"},
	} {
		r := handled(tt.abi)
		want := "{fs=" + tt.fs + ", net=" + tt.net + ", scoped=" + tt.scoped + "}"
		if got := r.String(); got != want {
			t.Errorf("ABI %d handles\n%s, want\n%s", tt.abi, got, want)
		}
	}
}

// The kernel refuses a rule whose rights do not fit what it is about.
func TestRightsFitTheKind(t *testing.T) {
	for _, k := range []host.Kind{host.File, host.Device, host.Socket, host.Other} {
		for _, a := range []policy.Access{policy.Hidden, policy.Read, policy.Write} {
			if rights := rightsFor(a, k); rights&^ofFiles != 0 {
				t.Errorf("%v of a %v has %s", a, k, names(rights&^ofFiles, fsNames))
			}
		}
	}
	if rightsFor(policy.Hidden, host.Dir) != 0 {
		t.Error("hidden gives rights")
	}
	if w := rightsFor(policy.Write, host.Dir); w&(fsMakeChar|fsMakeBlock|fsIoctlDev|fsResolveUnix) != 0 || w&rightsFor(policy.Read, host.Dir) != forRead {
		t.Errorf("writing is %s", names(w, fsNames))
	}
	if read := names(rightsFor(policy.Read, host.Dir), fsNames); strings.ContainsAny(read, "w") || read != "execute|read_file|read_dir" {
		t.Errorf("reading is %s", read)
	}
}
