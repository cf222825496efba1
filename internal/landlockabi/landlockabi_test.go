package landlockabi

import "testing"

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
		r := Handled(tt.abi)
		want := "{fs=" + tt.fs + ", net=" + tt.net + ", scoped=" + tt.scoped + "}"
		if got := r.String(); got != want {
			t.Errorf("ABI %d handles\n%s, want\n%s", tt.abi, got, want)
		}
	}
}
