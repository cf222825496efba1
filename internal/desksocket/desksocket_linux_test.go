package desksocket

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/testenv"
)

func serve(t *testing.T) *grant.Desk {
	t.Helper()
	d := grant.NewDesk(grant.Options{Timeout: time.Minute})
	s, err := Serve(d, Info{Pid: os.Getpid(), Command: []string{"make"}, Workspace: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); d.Close() })
	return d
}

// own finds the desk that the test made, among those that others may have.
func own(t *testing.T) *Desk {
	t.Helper()
	desks, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	for i := range desks {
		if desks[i].Info.Workspace == t.Name() {
			return &desks[i]
		}
	}
	t.Fatalf("the desk is not among the %d that were found", len(desks))
	return nil
}

// A5: another process sees the request, decides, and the asker hears of it.
func TestDecideFromElsewhere(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	d := serve(t)
	answers := make(chan error, 1)
	go func() {
		g, err := d.Ask(context.Background(), grant.Request{Path: "/usr/share", Access: grant.Write, Reason: "why not"})
		if err == nil && (g.Path != "/usr/share/doc" || g.Access != grant.Read || g.By != "ana") {
			err = errors.New("not what was decided: " + g.String())
		}
		answers <- err
	}()
	var seen *Desk
	testenv.Eventually(t, "the request comes to the desk", func() bool { seen = own(t); return len(seen.Requests) > 0 })
	if len(seen.Requests) != 1 || seen.Requests[0].Reason != "why not" || seen.Info.Command[0] != "make" {
		t.Fatalf("%+v", seen)
	}
	id := seen.Requests[0].ID
	if _, err := seen.Decide(id, grant.Decision{Allow: true, Path: "/"}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a wider decision: %v", err)
	}
	if _, err := seen.Decide(id, grant.Decision{Allow: true, Path: "/usr/share/doc", Access: grant.Read, By: "ana"}); err != nil {
		t.Error(err)
	}
	if err := <-answers; err != nil {
		t.Error(err)
	}
	if _, err := seen.Decide(id, grant.Decision{Allow: true}); !errors.Is(err, grant.ErrNotPending) {
		t.Errorf("deciding twice: %v", err)
	}
	d.Close()
}

// The socket has no name, so a killed process leaves nothing behind.
func TestNothingInTheFolder(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	serve(t)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("in the folder: %v, %v", left, err)
	}
	own(t)
}

// Another user cannot decide: the descriptor's folder is closed to them, and so
// is the socket.
func TestStrangersCannotDecide(t *testing.T) {
	testenv.Need(t, "root", "user", "setpriv", "/usr/bin/python3")
	serve(t)
	address := own(t).address
	script := `import socket,sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1])
except OSError as e:
    print("no", e.strerror); sys.exit(0)
s.sendall(b'{"op":"list"}\n')
print("answer", s.recv(100))`
	out, err := exec.Command("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3", "-c", script, address).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "no ") {
		t.Errorf("%s, %v", out, err)
	}
	// Root may decide for a user, who has nothing to hide from it.
	if _, err := exchange(address, message{Op: "list"}); err != nil {
		t.Error(err)
	}
}

// Nonsense is answered, and a flood is cut off.
func TestBadMessages(t *testing.T) {
	serve(t)
	c, err := net.Dial("unix", own(t).address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testenv.Patience))
	for _, line := range []string{"x\n", `{"op":"fly"}` + "\n", `{"op":"decide","id":"nobody"}` + "\n"} {
		if _, err := c.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1000)
		n, err := c.Read(buf)
		if err != nil || !strings.Contains(string(buf[:n]), `"error"`) {
			t.Errorf("%q: %s, %v", line, buf[:n], err)
		}
	}
	flood := []byte(strings.Repeat("x", 2*maxMessage))
	if _, err := c.Write(flood); err == nil {
		if _, err := c.Read(make([]byte, 10)); err == nil {
			t.Error("a line without an end was taken")
		}
	}
}

// Desks that are gone are not found.
func TestClosedDeskIsNotFound(t *testing.T) {
	d := grant.NewDesk(grant.Options{})
	s, err := Serve(d, Info{Workspace: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	own(t)
	s.Close()
	desks, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range desks {
		if found.Info.Workspace == t.Name() {
			t.Error("it is still found")
		}
	}
	if left, _ := filepath.Glob(filepath.Join(runtimeFolder(), "cloche-*", socketName)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// F10: the desk of a process that is confined is none: what it shows under the id of a
// request of somebody else is not what would be decided.
func TestDesksOfTheConfined(t *testing.T) {
	if os.Getenv("CLOCHE_TEST_FAKE_DESK") != "" {
		fakeDesk(t)
		return
	}
	for confined, want := range map[string]int{"no": 1, "yes": 0} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDesksOfTheConfined$")
		cmd.Env = append(os.Environ(), "CLOCHE_TEST_FAKE_DESK="+confined)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		desks, err := Find()
		n := 0
		for _, d := range desks {
			if d.Info.Pid == cmd.Process.Pid {
				n++
			}
		}
		if n != want || err != nil {
			t.Errorf("confined %s: %d desks, %v", confined, n, err)
		}
		in.Close()
		_ = cmd.Wait()
	}
}

// fakeDesk serves a desk until its input ends, with a filter that refuses nothing.
func fakeDesk(t *testing.T) {
	if os.Getenv("CLOCHE_TEST_FAKE_DESK") == "yes" {
		allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
		program := unix.SockFprog{Len: 1, Filter: &allow}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program))); errno != 0 {
			t.Fatal(errno)
		}
	}
	serve(t)
	os.Stdout.WriteString("ready\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
