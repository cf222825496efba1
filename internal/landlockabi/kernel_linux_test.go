package landlockabi

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The tables are written down for every platform; these are the kernel's own.
func TestNumbersOfTheKernel(t *testing.T) {
	for _, tt := range []struct {
		name       string
		ours, want uint64
	}{
		{"execute", Execute, unix.LANDLOCK_ACCESS_FS_EXECUTE},
		{"write_file", WriteFile, unix.LANDLOCK_ACCESS_FS_WRITE_FILE},
		{"read_file", ReadFile, unix.LANDLOCK_ACCESS_FS_READ_FILE},
		{"read_dir", ReadDir, unix.LANDLOCK_ACCESS_FS_READ_DIR},
		{"remove_dir", RemoveDir, unix.LANDLOCK_ACCESS_FS_REMOVE_DIR},
		{"remove_file", RemoveFile, unix.LANDLOCK_ACCESS_FS_REMOVE_FILE},
		{"make_char", MakeChar, unix.LANDLOCK_ACCESS_FS_MAKE_CHAR},
		{"make_dir", MakeDir, unix.LANDLOCK_ACCESS_FS_MAKE_DIR},
		{"make_reg", MakeReg, unix.LANDLOCK_ACCESS_FS_MAKE_REG},
		{"make_sock", MakeSock, unix.LANDLOCK_ACCESS_FS_MAKE_SOCK},
		{"make_fifo", MakeFifo, unix.LANDLOCK_ACCESS_FS_MAKE_FIFO},
		{"make_block", MakeBlock, unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK},
		{"make_sym", MakeSym, unix.LANDLOCK_ACCESS_FS_MAKE_SYM},
		{"refer", Refer, unix.LANDLOCK_ACCESS_FS_REFER},
		{"truncate", Truncate, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{"ioctl_dev", IoctlDev, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
		{"resolve_unix", ResolveUnix, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX},
		{"bind_tcp", BindTCP, unix.LANDLOCK_ACCESS_NET_BIND_TCP},
		{"connect_tcp", ConnectTCP, unix.LANDLOCK_ACCESS_NET_CONNECT_TCP},
		{"bind_udp", BindUDP, unix.LANDLOCK_ACCESS_NET_BIND_UDP},
		{"connect_send_udp", ConnectSendUDP, unix.LANDLOCK_ACCESS_NET_CONNECT_SEND_UDP},
		{"abstract_unix_socket", ScopeAbstractUnix, unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET},
		{"signal", ScopeSignal, unix.LANDLOCK_SCOPE_SIGNAL},
	} {
		if tt.ours != tt.want {
			t.Errorf("%s is %#x, want %#x", tt.name, tt.ours, tt.want)
		}
	}
}
