package notify

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// mapScript puts a path at the same address in any process.
const mapScript = `
import ctypes, mmap, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
libc.mkdirat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint]
address = 0x210000000
def put(path):
    if libc.mmap(address, 4096, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10, -1, 0) != address:
        sys.exit("no memory at the address")
    ctypes.memmove(address, path + b"\0", len(path) + 1)
`

// ownNumbers is set where the test runs in a pid namespace of its own.
const ownNumbers = "CLOCHE_TEST_OWN_NUMBERS"

// A process that ends while its call waits for the lock gives its number to a process of the
// host. The broker takes no name from the memory of that one.
//
// The test runs in a pid namespace of its own, where no other program takes the number.
func TestNumberReusedBehindLock(t *testing.T) {
	testenv.Need(t, "root", "python3", "unshare")
	if os.Getenv(ownNumbers) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		again := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", self, "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
		again.Env = append(os.Environ(), ownNumbers+"=1")
		out, err := again.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Fatalf("in a pid namespace of its own: %v\n%s", err, out)
		}
		return
	}
	for _, ends := range []bool{true, false} { // the control: a process that waits gets its directory
		dir := realTemp(t)
		config := workspace(dir)
		config.Lock = filepath.Join(t.TempDir(), "changes.lock")
		c := start(t, config, "writes", "python3", "-Bc", mapScript+`
put(sys.argv[1].encode())
os.mkdir(sys.argv[2])
while os.path.exists(sys.argv[2]): pass
sys.exit(libc.mkdirat(-100, address, 0o755))`, dir+"/inside", dir+"/ready")
		testenv.Eventually(t, "the program is ready", func() bool { _, err := os.Stat(dir + "/ready"); return err == nil })
		held, err := unix.Open(config.Lock, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(held)
		if err := errors.Join(unix.Flock(held, unix.LOCK_EX), os.Remove(dir+"/ready")); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "the call waits", func() bool { return callOf(c.cmd.Process.Pid) == unix.SYS_MKDIRAT })
		if ends {
			if err := c.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.cmd.Wait()
			takeNumber(t, c.cmd.Process.Pid, dir+"/outside")
		}
		if err := unix.Flock(held, unix.LOCK_UN); err != nil {
			t.Fatal(err)
		}
		if !ends {
			_ = c.cmd.Wait()
		}
		_ = c.broker.Close()
		_, inside := os.Stat(dir + "/inside")
		_, outside := os.Stat(dir + "/outside")
		if ends == (inside == nil) || outside == nil {
			t.Errorf("the process ends: %v; its directory: %v, that of the other process: %v", ends, inside, outside)
		}
	}
}

// callOf is the number of the system call that a process waits in.
func callOf(pid int) int {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/syscall")
	number, _, found := strings.Cut(string(text), " ")
	n, convErr := strconv.Atoi(number)
	if err != nil || convErr != nil || !found {
		return -1
	}
	return n
}

// takeNumber starts a process with a number, and a path in its memory.
func takeNumber(t *testing.T, pid int, path string) {
	t.Helper()
	for range 100 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Fatal(err)
		}
		other := exec.Command("python3", "-Bc", mapScript+`
put(sys.argv[1].encode())
if libc.capset((ctypes.c_uint * 2)(0x20080522, 0), (ctypes.c_uint * 6)()): # a process of an ordinary user has none
    sys.exit("capset")
print("ready", flush=True)
sys.stdin.read()`, path)
		in, err := other.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := other.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		end := func() {
			in.Close()
			_ = other.Wait()
		}
		if other.Process.Pid != pid {
			end()
			continue
		}
		t.Cleanup(end)
		var line [6]byte
		if _, err := out.Read(line[:]); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("a thread of this test took the number")
}
