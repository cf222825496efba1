//go:build linux && (amd64 || arm64)

package seccomp

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// answer is what the listener of the tests answers to everything: no call here
// fails with it by itself.
const answer = Errno(unix.ENOTBLK)

// notifyProbes are calls and what becomes of them where the listener is asked
// about everything.
func notifyProbes() []probe {
	file, folder, none := path("file"), path("folder"), path("none")
	const create = unix.O_CREAT | unix.O_WRONLY
	return []probe{
		{"openat", [6]uintptr{atCWD, file, unix.O_RDONLY}, answer, true},
		{"openat", [6]uintptr{atCWD, file, unix.O_WRONLY}, answer, true},
		{"openat", [6]uintptr{atCWD, file, unix.O_RDWR}, answer, true},
		{"openat", [6]uintptr{atCWD, file, unix.O_RDONLY | unix.O_TRUNC}, answer, true},
		{"openat", [6]uintptr{atCWD, none, create, 0o644}, answer, true},
		{"openat", [6]uintptr{atCWD, none, create, 0o4755}, EPERM, true},
		{"openat", [6]uintptr{atCWD, none, create, 0o2755}, EPERM, true},
		{"openat", [6]uintptr{atCWD, folder, unix.O_TMPFILE | unix.O_RDWR, 0o600}, answer, true},
		{"openat", [6]uintptr{atCWD, folder, unix.O_RDONLY | unix.O_DIRECTORY}, answer, true},
		{"openat", [6]uintptr{atCWD, file, unix.O_PATH}, 0, false},
		{"openat", [6]uintptr{atCWD, file, unix.O_PATH | unix.O_RDWR}, 0, false},
		{"openat2", [6]uintptr{atCWD, file, badPointer, 24}, ENOSYS, true},
		{"open", [6]uintptr{file, unix.O_WRONLY}, answer, true},
		{"creat", [6]uintptr{none, 0o644}, answer, true},
		{"creat", [6]uintptr{none, 0o4755}, EPERM, true},
		{"mkdir", [6]uintptr{none, 0o755}, answer, true},
		{"mkdirat", [6]uintptr{atCWD, none, 0o755}, answer, true},
		{"mknod", [6]uintptr{none, unix.S_IFIFO | 0o600}, answer, true},
		{"mknodat", [6]uintptr{atCWD, none, unix.S_IFIFO | 0o600}, answer, true},
		{"mknodat", [6]uintptr{atCWD, none, unix.S_IFCHR | 0o600, 0x103}, EPERM, false},
		{"rename", [6]uintptr{file, none}, answer, true},
		{"renameat", [6]uintptr{atCWD, file, atCWD, none}, answer, true},
		{"renameat2", [6]uintptr{atCWD, file, atCWD, none}, answer, true},
		{"link", [6]uintptr{file, none}, answer, true},
		{"linkat", [6]uintptr{atCWD, file, atCWD, none}, answer, true},
		{"symlink", [6]uintptr{file, none}, answer, true},
		{"symlinkat", [6]uintptr{file, atCWD, none}, answer, true},
		{"unlink", [6]uintptr{none}, answer, true},
		{"unlinkat", [6]uintptr{atCWD, none, 0}, answer, true},
		{"rmdir", [6]uintptr{none}, answer, true},
		{"truncate", [6]uintptr{file, 0}, answer, true},
		{"bind", [6]uintptr{badFD, badPointer, 16}, answer, true},
		{"umask", [6]uintptr{0o22}, answer, true},
		{"landlock_restrict_self", [6]uintptr{^uintptr(0)}, answer, true},
		{"flock", [6]uintptr{badFD, unix.LOCK_SH}, answer, true},
		{"fcntl", [6]uintptr{badFD, unix.F_OFD_GETLK}, answer, true},
		{"fcntl", [6]uintptr{badFD, unix.F_OFD_SETLK}, answer, true},
		{"fcntl", [6]uintptr{badFD, unix.F_OFD_SETLKW}, answer, true},
		{"fcntl", [6]uintptr{badFD, unix.F_SETLK}, Errno(unix.EBADF), false},
		{"execve", [6]uintptr{none}, answer, true},
		{"execveat", [6]uintptr{atCWD, none}, answer, true},
		{"connect", [6]uintptr{badFD, badPointer, 16}, answer, true},
		{"sendto", [6]uintptr{badFD, 0, 0, 0, badPointer, 16}, answer, true},
		{"sendto", [6]uintptr{badFD, 0, 0, 0, 1 << 32, 16}, answer, true},
		{"sendto", [6]uintptr{badFD}, Errno(unix.EBADF), false},
		{"sendmsg", [6]uintptr{badFD, badPointer}, answer, true},
		{"sendmmsg", [6]uintptr{badFD, badPointer}, answer, true},
		{"socket", [6]uintptr{unix.AF_UNIX, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC}, answer, true},
		{"socket", [6]uintptr{1<<32 | unix.AF_UNIX, 1<<32 | unix.SOCK_RAW}, answer, true},
		{"socket", [6]uintptr{unix.AF_UNIX, unix.SOCK_STREAM}, 0, false},
		{"socketpair", [6]uintptr{unix.AF_UNIX, unix.SOCK_DGRAM, 0, badPointer}, answer, true},
		{"socket", [6]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}, EAFNOSUPPORT, false},
	}
}

// listen installs the filter on this thread alone and answers from another one.
func listen(o Options) error {
	code, err := Filter(o)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(code) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(&code[0]))}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
		uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(code)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	go answerAll(fd)
	return nil
}

// answerAll answers every notification with the error, as long as there are any.
func answerAll(fd uintptr) {
	const (
		receive = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
		send    = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	)
	for {
		var request struct {
			id         uint64
			pid, flags uint32
			data       [8]uint64
		}
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, fd, receive, uintptr(unsafe.Pointer(&request))); e != 0 {
			return
		}
		response := struct {
			id    uint64
			value int64
			errno int32
			flags uint32
		}{id: request.id, errno: -int32(answer)}
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, fd, send, uintptr(unsafe.Pointer(&response))); e != 0 {
			return
		}
	}
}

// runNotifyProbes makes the calls while the listener answers, and prints their
// errors in order.
func runNotifyProbes(o Options) error {
	if err := os.WriteFile("file", []byte("x"), 0o600); err != nil {
		return err
	}
	if err := os.Mkdir("folder", 0o700); err != nil {
		return err
	}
	list := notifyProbes()
	m, err := machineFor("")
	if err != nil {
		return err
	}
	errnos := make([]int, len(list))
	if err := listen(o); err != nil {
		return err
	}
	for i, p := range list {
		if n, _ := m.number(p.call); n != absent {
			_, _, e := unix.Syscall6(uintptr(n), p.args[0], p.args[1], p.args[2], p.args[3], p.args[4], p.args[5])
			errnos[i] = int(e)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(errnos)
}

// On the real kernel the listener is asked about each call of the groups, never
// about a denied one, and about nothing else.
func TestKernelNotifies(t *testing.T) { // N1, N2
	m, err := machineFor("")
	if err != nil {
		t.Fatal(err)
	}
	o := &Options{Notify: NotifyWrites | NotifyReads | NotifyExec | NotifyConnect | NotifyDatagrams}
	r := child(t, childJob{Options: o, Listen: true})
	var errnos []int
	if err := json.Unmarshal([]byte(r.stdout), &errnos); err != nil {
		t.Fatalf("the child said %q, %q, status %d", r.stdout, r.stderr, r.code)
	}
	tried := map[string]bool{}
	for i, p := range notifyProbes() {
		tried[p.call] = tried[p.call] || p.want == answer
		if n, _ := m.number(p.call); n != absent && errnos[i] != int(p.want) {
			t.Errorf("%s %x: %v, want %v", p.call, p.args, syscall.Errno(errnos[i]), syscall.Errno(p.want))
		}
	}
	list, err := askedCalls(*o)
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range list {
		if !tried[call] {
			t.Errorf("no probe expects %s to be asked about", call)
		}
	}
}
