//go:build amd64 || arm64

package sysprog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// initFile holds the init program, sealed.
var initFile = sync.OnceValues(func() (int, error) {
	binary, err := initprog.Binary()
	if err != nil {
		return -1, err
	}
	fd, err := unix.MemfdCreate("cloche-init", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, err
	}
	if _, err := unix.Write(fd, binary); err != nil {
		return -1, err
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	return fd, err
})

// A box is a sample sandbox and the ends of its pipes.
type box struct {
	t                        testing.TB
	sample                   *sample
	options                  Options
	out, status, lifeline    *os.File
	outIn, statusIn, lineOut *os.File
	dir                      *os.File
	null                     *os.File
}

// newBox prepares a sandbox that runs a script, with the folder writable.
func newBox(t testing.TB, dir, script string) *box {
	t.Helper()
	b := &box{t: t}
	fd, err := initFile()
	if err != nil {
		t.Fatal(err)
	}
	pipes := []struct{ r, w **os.File }{{&b.out, &b.outIn}, {&b.status, &b.statusIn}, {&b.lineOut, &b.lifeline}}
	for _, p := range pipes {
		if *p.r, *p.w, err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
	}
	if b.null, err = os.Open(os.DevNull); err != nil {
		t.Fatal(err)
	}
	if b.dir, err = os.Open(dir); err != nil {
		t.Fatal(err)
	}
	c := initprog.Config{StatusFD: 3, LifelineFD: 4, Processes: -1, OpenFiles: -1, FileSize: -1}
	c.Path, c.Args = "/bin/sh", []string{"sh", "-c", script}
	b.sample = &sample{uid: os.Getuid(), gid: os.Getgid(), writable: dir, argv: c.Argv("cloche-init")}
	b.options = Options{CloneFlags: sampleFlags, Env: []string{"PATH=/usr/bin:/bin"}, Files: []int{
		int(b.null.Fd()), int(b.outIn.Fd()), int(b.outIn.Fd()), int(b.statusIn.Fd()), int(b.lineOut.Fd()), fd, int(b.dir.Fd()),
	}}
	return b
}

// run runs the sandbox to its end and returns the output and the exit code.
func (b *box) run() (string, int) {
	b.t.Helper()
	b.sample.build()
	proc := start(b.t, &b.sample.Program, b.options)
	b.outIn.Close()
	b.statusIn.Close()
	text, err := io.ReadAll(b.out)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, want := range []initprog.RecordType{initprog.Started, initprog.Exited} {
		if rec, err := initprog.ReadRecord(b.status); err != nil || rec.Type != want {
			b.t.Errorf("record %+v, %v; want %d", rec, err, want)
		}
	}
	code := wait(b.t, proc)
	b.close()
	return string(text), code
}

func (b *box) close() {
	for _, f := range []*os.File{b.out, b.status, b.lifeline, b.outIn, b.statusIn, b.lineOut, b.dir, b.null} {
		f.Close()
	}
}

// probes prints one word for each part of the sandbox.
const probes = `
echo "pid $(readlink /proc/self | cut -c1-1)"
hostname
(echo x > /usr/probe) 2>/dev/null && echo "usr is writable"
echo x > /tmp/probe && echo "tmp is writable"
echo x > "/mnt/probe" && echo "folder is writable"
set -- $(grep -c : /proc/net/dev); echo "interfaces $1"
grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr '\t\n' '  '; echo
setarch -R true 2>/dev/null && echo "personality is allowed"
exit 5`

// F3, F11, A1: the whole sandbox, as root and as an ordinary user.
func TestSandbox(t *testing.T) {
	needKernel(t)
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns")
	dir := t.TempDir()
	fds := descriptors(t)
	b := newBox(t, dir, probes)
	text, code := b.run()
	for _, want := range []string{
		"cloche\n", "tmp is writable\n", "folder is writable\n", "interfaces 1\n", "NoNewPrivs: 1", "Seccomp: 2", "CapEff: 0000000000000000",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "usr is writable") || strings.Contains(text, "personality is allowed") || code != 5 {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	if _, err := os.Stat(dir + "/probe"); err != nil {
		t.Errorf("the folder is not the host's: %v", err)
	}
	if now := descriptors(t); now > fds+1 { // the init's file stays open
		t.Errorf("%d descriptors, %d before", now, fds)
	}
	noChildren(t)
}

// A folder of another user is as usable by root inside as outside, which only a
// map of all ids gives, and only the parent can write it.
func TestIdentityMap(t *testing.T) {
	needKernel(t)
	testenv.Need(t, "root", "userns")
	dir := t.TempDir()
	if err := os.Chown(dir, 4321, 8765); err != nil {
		t.Skip(err)
	}
	b := newBox(t, dir, `stat -c %u:%g "/mnt"; id -u; wc -l < /proc/self/uid_map`)
	b.sample.identity = true
	pid := 0
	b.options.SyncParent = func(c *Child) error {
		pid = c.Pid
		return MapIdentity(c.Pid)
	}
	text, code := b.run()
	if code != 0 || !strings.HasPrefix(text, "4321:8765\n0\n") {
		t.Errorf("exit code %d: %q", code, text)
	}
	if pid == 0 {
		t.Error("the parent was not asked")
	}
	noChildren(t)
}

func TestSyncParent(t *testing.T) {
	needKernel(t)
	fds := descriptors(t)
	var result Arg
	p := program(func(_ *Program, b Block) {
		b.CloseOthers(0, 1, 2)
		result = b.MoveAbove(FD(0), 90)
		b.SyncParent()
		b.Fchdir(b.Openat(Cwd(), "/", OpenPath|OpenDirectory, 0))
		b.SyncParent()
		b.Exit(6)
	})
	var rounds []string
	proc := start(t, p, Options{SyncParent: func(c *Child) error {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Pid))
		rounds = append(rounds, fmt.Sprint(c.Round, c.Result(result), strings.Contains(string(data), fmt.Sprintf("PPid:\t%d\n", os.Getpid()))))
		if unix.PidfdSendSignal(c.PidFD(), 0, nil, 0) != nil {
			t.Error("the pidfd is not that of the child")
		}
		return err
	}})
	if code := wait(t, proc); code != 6 || strings.Join(rounds, ",") != "0 90 true,1 90 true" {
		t.Errorf("exit code %d, rounds %q", code, rounds)
	}

	refused := errors.New("no map for you")
	_, err := Run(context.Background(), p, Options{SyncParent: func(*Child) error { return refused }})
	if !errors.Is(err, refused) {
		t.Errorf("%v, want the parent's own error", err)
	}

	p = program(func(_ *Program, b Block) { b.Chdir("/no/such"); b.SyncParent(); b.Exit(0) })
	if err := failure(t, p, Options{SyncParent: func(*Child) error { t.Error("asked"); return nil }}); err.Index != 0 {
		t.Errorf("%v, want step 0", err)
	}
	if now := descriptors(t); now > fds {
		t.Errorf("%d descriptors, %d before", now, fds)
	}
	noChildren(t)
}

// Two children that wait at the same time hold copies of each other's sockets.
func TestSyncParentAtTheSameTime(t *testing.T) {
	needKernel(t)
	p := program(func(_ *Program, b Block) { b.SyncParent(); b.Exit(0) })
	var both, all sync.WaitGroup
	both.Add(2)
	for i := range 2 {
		all.Go(func() {
			_, err := Run(context.Background(), p, Options{SyncParent: func(*Child) error {
				both.Done()
				both.Wait()
				return errors.New("no")
			}})
			if err == nil {
				t.Errorf("run %d started", i)
			}
		})
	}
	all.Wait()
	noChildren(t)
}

// N10: a process that joins a pid namespace and forks there is still our
// child.
func TestFork(t *testing.T) {
	needKernel(t)
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns")
	fds := descriptors(t)
	fork := func(last func(b Block)) *Program {
		return program(func(p *Program, b Block) {
			b.Dup3(p.AddFile("output"), 1)
			b.Unshare(NewPID)
			b.Fork(NewMount)
			last(b)
		})
	}
	text, code := output(t, fork(func(b Block) { shell(b, "echo $$; exit 8") }), Options{CloneFlags: NewUser})
	if text != "1\n" || code != 8 {
		t.Errorf("%q, exit code %d; want pid 1 and 8", text, code)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{CloneFlags: NewUser, Files: []int{int(null.Fd())}}
	if err := failure(t, fork(func(b Block) { execve(b, "/no/such", "x") }), o); err.Index != 3 || !isErrno(err, unix.ENOENT) {
		t.Errorf("%v, want ENOENT of step 3", err)
	}
	null.Close()
	if now := descriptors(t); now > fds {
		t.Errorf("%d descriptors, %d before", now, fds)
	}
	noChildren(t)
}
