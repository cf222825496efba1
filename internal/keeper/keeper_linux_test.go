package keeper

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// role makes the test binary one end of a connection.
const role = "CLOCHE_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "filtered":
		addFilter()
		fallthrough
	case "listen":
		listenAt(os.Args[1])
	case "serve":
		if len(os.Args) > 3 {
			callAt(os.Args[1], Key(os.Args[2]), os.Args[3])
			return
		}
		err := Serve(os.Args[1], Key(os.Args[2]), os.Getppid(), func(_ context.Context, c *Client) (int, bool) {
			if c.Args[0] == "signaled" {
				come := make(chan struct{})
				passes := sync.OnceFunc(func() { fmt.Fprintln(c.Files[1], "passes signals on") })
				c.Deliver(func(s syscall.Signal) {
					if s != unix.SIGCONT {
						close(come)
					}
					passes()
				})
				<-come
				return 0, false
			}
			fmt.Fprintf(c.Files[1], "%q %q in %q", c.Args, c.Env, c.Dir)
			return 7, c.Args[0] != "cold"
		})
		fmt.Println(err)
	}
}

// addFilter gives this process a seccomp filter that allows everything, as every confined command has one.
func addFilter() {
	allow := unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW}
	program := unix.SockFprog{Len: 1, Filter: &allow}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program))); errno != 0 {
		panic(errno)
	}
}

// listenAt accepts every client, and says whether one has sent more than nothing.
func listenAt(path string) {
	l, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	fmt.Println("listens")
	for {
		conn, err := l.Accept()
		if err != nil {
			panic(err)
		}
		_, _ = conn.Write([]byte{hello})
		n, _ := conn.Read(make([]byte, 100))
		fmt.Println("received", n)
		conn.Close()
	}
}

// callAt has a keeper run a call, and says what happened.
func callAt(dir string, key Key, arg string) {
	conn, err := Dial(dir, key)
	if err != nil {
		panic(err)
	}
	fmt.Println(conn.Run(&Call{Args: []string{arg}, Files: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}}))
}

// started starts the test binary in a role, by another program if there is one, and returns what it prints.
func started(t *testing.T, as string, by []string, args ...string) *bufio.Scanner {
	t.Helper()
	argv := slices.Concat(by, []string{"/proc/self/exe"}, args)
	if len(by) > 0 {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		argv[len(by)] = self
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), role+"="+as)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return bufio.NewScanner(out)
}

// N15: a client sends nothing to a process that is not cloche, or that is confined in another way, wherever its socket is.
func TestClientChecksKeeper(t *testing.T) {
	testenv.Need(t, "userns", "unshare", "python3")
	testenv.AlsoAsUser(t)
	user := []string{"unshare", "-r"}
	if os.Getuid() == 0 {
		user = []string{"unshare"}
	}
	python := `import socket,sys
l = socket.socket(socket.AF_UNIX); l.bind(sys.argv[1]); l.listen(); print("listens", flush=True)
while True:
    c, _ = l.accept()
    n = 0
    try: c.send(b"K"); n = len(c.recv(100))
    except OSError: pass
    print("received", n, flush=True)`
	for _, c := range []struct {
		name, as string
		by       []string
		accepted bool
	}{
		{"alike", "listen", nil, true},
		{"filtered", "filtered", nil, false},
		{"network", "listen", append(user, "-n"), false},
		{"mounts", "listen", append(user, "-m"), false},
		{"pids", "listen", append(user, "-p", "-f", "--kill-child"), false},
		{"python", "listen", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "key")
			var said *bufio.Scanner
			if c.name == "python" {
				said = startedProgram(t, "python3", "-c", python, path)
			} else {
				said = started(t, c.as, c.by, path)
			}
			if !said.Scan() || said.Text() != "listens" {
				t.Fatalf("%q", said.Text())
			}
			conn, err := Dial(dir, "key")
			if (err == nil) != c.accepted {
				t.Errorf("accepted %v (%v), want %v", err == nil, err, c.accepted)
			}
			if err == nil {
				conn.Close()
			}
			if !said.Scan() || said.Text() != "received 0" {
				t.Errorf("the other end says %q", said.Text())
			}
		})
	}
}

func startedProgram(t *testing.T, argv ...string) *bufio.Scanner {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return bufio.NewScanner(out)
}

// keep starts a keeper for this process, with a key.
func keep(t *testing.T, key func() Key) (dir string, said *bufio.Scanner) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(role, "serve")
	return dir, started(t, "serve", nil, dir, string(key()))
}

func ownKey(t *testing.T) func() Key {
	t.Helper()
	return func() Key {
		key, err := KeyOf(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
}

// N15: a keeper runs calls of clients with its key, and of no others. Whatever bytes they have arrive.
func TestServe(t *testing.T) {
	testenv.AlsoAsUser(t)
	dir, _ := keep(t, ownKey(t))
	key := ownKey(t)()
	var conn *Conn
	testenv.Eventually(t, "the keeper listens", func() (ok bool) {
		var err error
		conn, err = Dial(dir, key)
		return err == nil
	})
	call := func(conn *Conn, args ...string) (string, int, bool) {
		t.Helper()
		defer conn.Close()
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		status, taken, err := conn.Run(&Call{Args: args, Env: []string{"A=1", "\xff="}, Dir: "/x\n", Files: [3]*os.File{null, out, out}})
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text), status, taken
	}
	large := strings.Repeat("x", 1<<20)
	if text, status, taken := call(conn, "", "a b", "\x01\xff\n", large); !taken || status != 7 || text != fmt.Sprintf("%q %q in %q", []string{"", "a b", "\x01\xff\n", large}, []string{"A=1", "\xff="}, "/x\n") {
		t.Errorf("%.100q, %d, %v", text, status, taken)
	}
	again := func() *Conn {
		c, err := Dial(dir, key)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if _, _, taken := call(again(), "cold"); taken {
		t.Error("a call that the keeper does not take was taken")
	}
	other := again()
	other.key = Key(strings.Repeat("0", len(key)))
	if text, _, taken := call(other, "x"); taken || text != "" {
		t.Errorf("a client with another key got %q, %v", text, taken)
	}
	if pids := Running(dir); len(pids) != 1 {
		t.Errorf("running: %v", pids)
	}
	// Parts of a request, and nonsense.
	whole := (&request{key, &Call{Args: []string{"x"}}}).encode()
	for _, text := range [][]byte{whole, whole[:9], bytes.Repeat([]byte{0xff}, 100), make([]byte, 8), {1}} {
		c := again()
		if err := unix.Sendto(c.fd, text, 0, nil); err != nil {
			t.Fatal(err)
		}
		_ = unix.Shutdown(c.fd, unix.SHUT_WR)
		var b [1]byte
		if n, _ := c.read(b[:]); n != 0 && b[0] != notTaken {
			t.Errorf("%.20q is answered with %q", text, b)
		}
		c.Close()
	}
	if text, _, _ := call(again(), "x"); !strings.HasPrefix(text, `["x"]`) {
		t.Errorf("after that: %q", text)
	}
	// Signals do not get into a request.
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Kill(os.Getpid(), unix.SIGCONT)
			}
		}
	}()
	for range 50 {
		if text, status, _ := call(again(), large); status != 7 || !strings.Contains(text, large) {
			t.Errorf("while signals come: %.20q, %d", text, status)
		}
	}
	close(stop)
	<-stopped
}

// N15: the sockets of killed keepers do not count for how many an agent may have.
func TestStartAfterKilled(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	end := func() {}
	for i := range maxKeepers {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("%s/%s%d", dir, prefix(os.Getpid()), i), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		before := end
		end = func() { l.Close(); before() }
	}
	t.Setenv(role, "ends")
	if err := Start(dir, "key", os.Getpid()); err == nil {
		t.Errorf("another one than %d is started", maxKeepers)
	}
	end()
	if err := Start(dir, "key", os.Getpid()); err != nil {
		t.Error(err)
	}
}

// N15: a signal for a client whose call is not taken in the end is not lost: it has its usual effect on the client, which would run the command.
func TestSignalOfCallNotTaken(t *testing.T) {
	dir, _ := keep(t, ownKey(t))
	key := ownKey(t)()
	testenv.Eventually(t, "the keeper listens", func() bool { return len(Running(dir)) == 1 })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	client := exec.Command(self, dir, string(key), "signaled")
	out, err := client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	defer client.Process.Kill()
	passes, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		testenv.Eventually(t, "the client passes signals on", func() bool {
			select {
			case <-passes:
				return true
			default:
				return client.Process.Signal(unix.SIGCONT) != nil
			}
		})
	}()
	said := bufio.NewScanner(out)
	said.Scan()
	close(passes)
	<-told
	if said.Text() != "passes signals on" {
		t.Fatalf("%q", said.Text())
	}
	if err := client.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if said.Scan() {
		t.Errorf("the client goes on: %s", said.Text())
	}
	_ = client.Wait()
	if status := client.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != unix.SIGTERM {
		t.Errorf("%v", client.ProcessState)
	}
}

// N15: a keeper that is not like the process that has started it does not serve.
func TestServeChecksItself(t *testing.T) {
	key := Key(prefix(os.Getpid()) + strings.Repeat("0", 64))
	dir, said := keep(t, func() Key { return key })
	if !said.Scan() || said.Text() != "this process is not like the one that has started it" {
		t.Errorf("%q", said.Text())
	}
	if err := Start(dir, key, os.Getpid()); err == nil || err.Error() != "the keeper could not serve before" {
		t.Errorf("the next one is started: %v", err)
	}
	// The note of an agent that has ended is swept.
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, prefix(ended.Process.Pid)+"0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at, err := folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	if sweep(at, dir, key) {
		t.Error("a note is taken for a keeper")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != string(key) {
		t.Errorf("%v, %v", left, err)
	}
}

// N15: everything that a command inherits changes the key.
func TestKey(t *testing.T) {
	own := ownKey(t)
	before := own()
	if own() != before {
		t.Fatal("two keys of one process differ")
	}
	differs := func(what string, want bool) {
		t.Helper()
		if (own() != before) != want {
			t.Errorf("%s: the key differs: %v, want %v", what, !want, want)
		}
	}
	mask := unix.Umask(0o123)
	differs("umask", true)
	unix.Umask(mask)
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
		t.Fatal(err)
	}
	if l.Max > 0 {
		if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: l.Max - 1, Max: l.Max}); err != nil {
			t.Fatal(err)
		}
		differs("a limit", true)
		if err := unix.Setrlimit(unix.RLIMIT_CORE, &l); err != nil {
			t.Fatal(err)
		}
	}
	differs("all as it was", false)
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // it is a thread's
	defer runtime.UnlockOSThread()
	for _, ns := range []int{slack + 1, slack} {
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(ns), 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		differs("timer slack", ns != slack)
	}
	if err := unix.Getrlimit(unix.RLIMIT_CPU, &l); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: 1 << 30, Max: l.Max}); err != nil {
		t.Fatal(err)
	}
	if key, err := KeyOf(os.Getpid()); err == nil {
		t.Errorf("with a limit on processor time: %s", key)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CPU, &l); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PWD", "/elsewhere")
	t.Setenv("SHLVL", "9")
	differs("variables of a call", false)
	t.Setenv("XDG_STATE_HOME", "/elsewhere")
	differs("XDG_STATE_HOME", true)
	before = own()
	t.Setenv("ANY", "")
	differs("a variable", true)
	before = own()
	t.Chdir(t.TempDir())
	differs("the folder", true)
	other, err := KeyOf(os.Getppid())
	if err != nil || other == own() {
		t.Errorf("another agent has the same key (%v)", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&request{"key", &Call{Args: []string{"a", ""}, Env: []string{"B=c"}, Dir: "/d"}}).encode()[8:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &request{}
		if r.decode(text) == nil && !bytes.Equal(r.encode()[8:], text) {
			t.Errorf("%q is read as %+v", text, r.Call)
		}
	})
}
