package landlock

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
		{"execute", fsExecute, unix.LANDLOCK_ACCESS_FS_EXECUTE},
		{"write_file", fsWriteFile, unix.LANDLOCK_ACCESS_FS_WRITE_FILE},
		{"read_file", fsReadFile, unix.LANDLOCK_ACCESS_FS_READ_FILE},
		{"read_dir", fsReadDir, unix.LANDLOCK_ACCESS_FS_READ_DIR},
		{"remove_dir", fsRemoveDir, unix.LANDLOCK_ACCESS_FS_REMOVE_DIR},
		{"remove_file", fsRemoveFile, unix.LANDLOCK_ACCESS_FS_REMOVE_FILE},
		{"make_char", fsMakeChar, unix.LANDLOCK_ACCESS_FS_MAKE_CHAR},
		{"make_dir", fsMakeDir, unix.LANDLOCK_ACCESS_FS_MAKE_DIR},
		{"make_reg", fsMakeReg, unix.LANDLOCK_ACCESS_FS_MAKE_REG},
		{"make_sock", fsMakeSock, unix.LANDLOCK_ACCESS_FS_MAKE_SOCK},
		{"make_fifo", fsMakeFifo, unix.LANDLOCK_ACCESS_FS_MAKE_FIFO},
		{"make_block", fsMakeBlock, unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK},
		{"make_sym", fsMakeSym, unix.LANDLOCK_ACCESS_FS_MAKE_SYM},
		{"refer", fsRefer, unix.LANDLOCK_ACCESS_FS_REFER},
		{"truncate", fsTruncate, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{"ioctl_dev", fsIoctlDev, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
		{"resolve_unix", fsResolveUnix, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX},
		{"bind_tcp", netBindTCP, unix.LANDLOCK_ACCESS_NET_BIND_TCP},
		{"connect_tcp", netConnectTCP, unix.LANDLOCK_ACCESS_NET_CONNECT_TCP},
		{"bind_udp", netBindUDP, unix.LANDLOCK_ACCESS_NET_BIND_UDP},
		{"connect_send_udp", netConnectSendUDP, unix.LANDLOCK_ACCESS_NET_CONNECT_SEND_UDP},
		{"abstract_unix_socket", scopeAbstractUnix, unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET},
		{"signal", scopeSignal, unix.LANDLOCK_SCOPE_SIGNAL},
	} {
		if tt.ours != tt.want {
			t.Errorf("%s is %#x, want %#x", tt.name, tt.ours, tt.want)
		}
	}
}
