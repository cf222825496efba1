package apitest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

const confinedLaterVariable = "CLOCHE_TEST_CONFINED_LATER"

// A11: a remembered yes does not outlive the confinement that it was found out
// under: the launch that fails asks again and takes the next backend.
func TestConfinedLater(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns", "landlock")
	for _, fallback := range []string{"landlock", "none"} {
		c := exec.Command(os.Args[0], "-test.run=^TestConfinedLaterProcess$", "-test.v")
		c.Env = append(os.Environ(), confinedLaterVariable+"="+fallback, "XDG_CACHE_HOME="+workspace(t))
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "then by "+fallback) {
			t.Errorf("%s: %v\n%s", fallback, err, out)
		}
	}
}

// TestConfinedLaterProcess is the helper of TestConfinedLater, in a process of its own.
func TestConfinedLaterProcess(t *testing.T) {
	fallback := os.Getenv(confinedLaterVariable)
	if fallback == "" {
		t.Skip("it is the other process of TestConfinedLater")
	}
	dir := workspace(t)
	p := policy.Workspace(dir).With(policy.WithRequire(policy.BestEffort), policy.Set("fallback", "warn"))
	backend := func(s *cloche.Session) string {
		t.Helper()
		c := s.Command(t.Context(), "/bin/true")
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		return c.Result().Backend
	}
	install(t, unix.SECCOMP_RET_ALLOW)
	kept := open(t, p, dir)
	if got := backend(kept); got != "native" {
		t.Fatalf("at first it is %s", got)
	}
	install(t, unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM), unix.SYS_UNSHARE, unix.SYS_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_PIVOT_ROOT)
	if fallback == "none" {
		install(t, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS), unix.SYS_LANDLOCK_CREATE_RULESET)
	}
	for _, s := range []*cloche.Session{kept, open(t, p, dir)} {
		fmt.Println("then by", backend(s))
	}
}

// install puts a filter over this process that answers some calls.
func install(t *testing.T, answer uint32, calls ...uint32) {
	t.Helper()
	code := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	for i, nr := range calls {
		code = append(code, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jt: uint8(len(calls) - i)})
	}
	code = append(code, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: answer})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program))); errno != 0 {
		t.Fatal(errno)
	}
}
