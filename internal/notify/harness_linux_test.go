package notify

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// confineVariable makes the test's own program a launcher: it installs the
// filter, sends the listener over descriptor 3, and executes its arguments.
const confineVariable = "CLOCHE_TEST_CONFINE"

func TestMain(m *testing.M) {
	if groups := os.Getenv(confineVariable); groups != "" {
		fmt.Fprintln(os.Stderr, confine(groups))
		os.Exit(125)
	}
	if folder := os.Getenv(innerVariable); folder != "" {
		fmt.Fprintln(os.Stderr, inner(folder))
		os.Exit(125)
	}
	os.Exit(m.Run())
}

func confine(groups string) error {
	runtime.LockOSThread()
	o := seccomp.Options{Notify: seccomp.NotifyWrites}
	if groups == "reads" {
		o.Notify |= seccomp.NotifyReads
	}
	filter, err := seccomp.Filter(o)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// As in a sandbox, root is left with the capabilities over files.
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if fileCapabilities&(1<<c) == 0 {
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
	}
	path, err := exec.LookPath(os.Args[1])
	if err != nil {
		return err
	}
	os.Unsetenv(confineVariable)
	argv, env := os.Args[1:], os.Environ()
	prog := unix.SockFprog{Len: uint16(len(filter) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	const newListener, waitKillable = 8, 32
	fd, _, e := unix.RawSyscall(unix.SYS_SECCOMP, 1, newListener|waitKillable, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return e
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(fd)), nil, 0); err != nil {
		return err
	}
	unix.Close(int(fd))
	unix.Close(3)
	return unix.Exec(path, argv, env)
}

// A confined command is one that runs under a broker. There is no Landlock and
// no namespace: these tests are about what the broker does.
type confined struct {
	cmd    *exec.Cmd
	broker *Broker
	out    bytes.Buffer
}

func start(t testing.TB, config Config, groups string, argv ...string) *confined {
	t.Helper()
	c, socket := launch(t, groups, argv...)
	return c.serve(t)(Await(socket, config))
}

// startUntold starts a command whose broker is not told what to hold.
func startUntold(t testing.TB, groups string, argv ...string) *confined {
	t.Helper()
	c, socket := launch(t, groups, argv...)
	defer unix.Close(socket)
	listener, err := ReceiveListener(socket)
	if err != nil {
		_ = c.cmd.Wait()
		t.Fatalf("no listener: %v\n%s", err, &c.out)
	}
	b := Serve(listener)
	b.Attend()
	return c.serve(t)(b, b.err)
}

// launch starts a command that sends its listener to the socket.
func launch(t testing.TB, groups string, argv ...string) (c *confined, socket int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "listener")
	c = &confined{cmd: exec.Command(os.Args[0], argv...)}
	c.cmd.Env = append(os.Environ(), confineVariable+"="+groups)
	c.cmd.ExtraFiles = []*os.File{theirs}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	err = c.cmd.Start()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	return c, pair[0]
}

// serve takes the broker of the command.
func (c *confined) serve(t testing.TB) func(*Broker, error) *confined {
	return func(b *Broker, err error) *confined {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		c.broker = b
		t.Cleanup(func() {
			_ = b.Close()
			b.Free()
		})
		return c
	}
}

// run runs a shell script under a broker and returns its output and what was
// refused, as "op path".
func run(t testing.TB, config Config, groups, script string) (out string, refused []string) {
	t.Helper()
	c := start(t, config, groups, "sh", "-c", script)
	err := c.cmd.Wait()
	if err := c.broker.Close(); err != nil {
		t.Error(err)
	}
	list, _ := c.broker.Denied()
	for _, d := range list {
		refused = append(refused, string(d.Op)+" "+d.Path)
	}
	if err != nil {
		c.out.WriteString("\n" + err.Error())
	}
	return strings.TrimSpace(c.out.String()), refused
}

// workspace is a plan that lets root be written, but for the patterns.
func workspace(root string, globs ...plan.Glob) Config {
	p := &plan.Plan{
		Paths: []plan.Path{
			{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read},
			{Path: "/dev", Kind: hostfs.Dir, Access: policy.Write, Content: plan.Devices},
			{Path: root, Source: root, Kind: hostfs.Dir, Access: policy.Write, Origin: policy.Origin{Layer: policy.LayerPreset}},
		},
		Globs: globs,
	}
	return Config{Judge: sync.OnceValue(func() *judge.Files { return judge.NewFiles(p) }), Roots: p.Guarded(), Reads: p.HidesByPattern()}
}

func protect(pattern string) plan.Glob {
	return plan.Glob{Pattern: pattern, Access: policy.Read, Origin: policy.Origin{Layer: policy.LayerCommand}}
}

func hide(pattern string) plan.Glob {
	return plan.Glob{Pattern: pattern, Access: policy.Hidden, Origin: policy.Origin{Layer: policy.LayerCommand}}
}

// realTemp is a temporary folder by its real path.
func realTemp(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func execShell(script, dir string) *exec.Cmd { return exec.Command("sh", "-c", script, "sh", dir) }
