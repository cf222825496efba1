package notify

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// innerVariable makes the test's own program one that lets itself write in that
// folder alone, and then executes its arguments.
const innerVariable = "CLOCHE_TEST_INNER"

func inner(folder string) error {
	runtime.LockOSThread()
	const writeFile, makeReg, makeDir = 1 << 1, 1 << 8, 1 << 7
	attr := [1]uint64{writeFile | makeReg | makeDir}
	ruleset, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if e != 0 {
		return e
	}
	dir, err := unix.Open(folder, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	rule := binary.NativeEndian.AppendUint64(nil, attr[0])
	rule = binary.NativeEndian.AppendUint32(rule, uint32(dir))
	if _, _, e := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset, 1, uintptr(unsafe.Pointer(&rule[0])), 0, 0, 0); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); e != 0 {
		return e
	}
	os.Unsetenv(innerVariable)
	return unix.Exec("/bin/sh", append([]string{"sh"}, os.Args[1:]...), os.Environ())
}

// N13: what a process inside may not do by a Landlock domain of its own, the
// broker does not do for it, nor for what it starts, also in the background or in a
// second domain that would allow it.
func TestInnerDomain(t *testing.T) {
	testenv.Need(t, "landlock")
	dir := realTemp(t)
	for _, d := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	script := `cd ` + dir + `; echo 1 > b/before; ` + innerVariable + `=` + dir + `/a ` + self + ` -c '
		echo 1 > a/in; mkdir a/dir; echo 1 > b/out; mkdir b/dir; (sh -c "echo 1 > b/child; echo 1 > a/child")
		` + innerVariable + `=` + dir + ` ` + self + ` -c "echo 1 > a/nested; echo 1 > b/nested"
		echo orphan $( (setsid sh -c "sleep 0.2; echo 1 > b/orphan; echo tried" &) )'
		echo 1 > b/after`
	out, _ := run(t, workspace(dir, protect("**/.envrc")), "writes", script)
	for name, want := range map[string]bool{"a/in": true, "a/dir": true, "a/child": true, "a/nested": true, "b/before": true, "b/after": true,
		"b/out": false, "b/dir": false, "b/child": false, "b/nested": false, "b/orphan": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v\n%s", name, err, want, out)
		}
	}
	if !strings.Contains(out, "ermission denied") || !strings.Contains(out, "orphan tried") {
		t.Errorf("output: %s", out)
	}
}

// adoptScript is a process without a domain. It adopts the orphan of one that has entered a
// domain, makes a file itself, and leaves an orphan of its own.
const adoptScript = `
import ctypes, os, subprocess, sys
prctl = ctypes.CDLL(None).prctl
inner, folder, before = sys.argv[1:]
prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
orphan = before + 'until grep -q "^PPid:.$REAPER$" /proc/$$/status; do :; done; echo 1 > b/adopted'
subprocess.run([inner, "-c", "(setsid bash -c '" + orphan + "' &)"], env=dict(os.environ, REAPER=str(os.getpid()), ` + innerVariable + `=folder))
os.wait()
open("b/own", "w").close()
prctl(36, 0, 0, 0, 0)
done, say = os.pipe()
if os.fork() == 0:
    middle = os.getpid()
    if os.fork() == 0:
        while os.getppid() == middle: pass
        try: open("b/free", "w").close()
        finally: os._exit(0)
    os._exit(0)
os.close(say)
os.read(done, 1)
`

// N13: what domain a process is in does not depend on who its parent is now. An orphan of a
// process with a domain is not taken for one without, whoever adopts it and whatever it
// does to the limit that marks it; an orphan of a process without is in none.
func TestInnerDomainAdopted(t *testing.T) {
	testenv.Need(t, "landlock", "python3", "bash")
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, before := range map[string]string{"as it is": "", "lowered": "ulimit -x 1000; ", "raised": "ulimit -x unlimited; "} {
		t.Run(name, func(t *testing.T) {
			dir := realTemp(t)
			for _, d := range []string{"a", "b"} {
				if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			c := start(t, workspace(dir, protect("**/.envrc")), "writes", "python3", "-c", "import os; os.chdir('"+dir+"')"+adoptScript, self, dir+"/a", before)
			_ = c.cmd.Wait()
			for name, want := range map[string]bool{"b/adopted": false, "b/own": true, "b/free": true} {
				if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
					t.Errorf("%s: %v, want it there: %v\n%s", name, err, want, &c.out)
				}
			}
		})
	}
}

// forgeScript has a process of one domain, which may write in a, take the mark of a later
// one, which may write in b.
const forgeScript = `
INNER=$PWD/a $SELF -c 'exec bash -c "echo 1 > a/entered; until [ -s b/mark ]; do :; done; ulimit -x \$(cat b/mark) && echo 1 > a/same; echo 1 > b/forged; true"' &
forger=$!
until [ -e a/entered ]; do :; done
INNER=$PWD/b $SELF -c 'exec bash -c "ulimit -x > b/mark; while kill -0 '$forger' 2>&-; do :; done; echo 1 > b/own"' &
wait
`

// N13: a process that lowers its limit to the mark of another domain gains nothing: nothing is
// done for it any more.
func TestInnerDomainForged(t *testing.T) {
	testenv.Need(t, "landlock", "bash")
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	dir := realTemp(t)
	for _, d := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := strings.NewReplacer("INNER", innerVariable, "$SELF", self).Replace(forgeScript)
	out, _ := run(t, workspace(dir, protect("**/.envrc")), "writes", "cd "+dir+"; "+script)
	for name, want := range map[string]bool{"a/entered": true, "b/mark": true, "b/own": true, "a/same": false, "b/forged": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v\n%s", name, err, want, out)
		}
	}
}

// manyScript has more processes enter domains than there may be at once: one after the
// other, and then all at the same time.
const manyScript = `
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def enter():
    fd = libc.syscall(444, ctypes.c_char_p(struct.pack("Q", 2)), ctypes.c_size_t(8), 0)  # landlock_create_ruleset, of writing
    if libc.syscall(446, fd, 0) != 0: return 1
    try: open("made", "w").close()
    except OSError: return 0
    return 2
worst = 0
for i in range(300):
    pid = os.fork()
    if pid == 0: os._exit(enter())
    worst = max(worst, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
done, hold = os.pipe()
said, say = os.pipe()
for i in range(300):
    if os.fork() == 0:
        os.write(say, bytes([enter()]))
        os.close(hold)
        os.read(done, 1)
        os._exit(0)
got = b""
while len(got) < 300: got += os.read(said, 300)
os.close(hold)
open("made", "w").close()
print(worst, max(got), got.count(0) > 200, got.count(1) > 0)
`

// N13: domains that nobody is in any more are let go, so that any number of processes can enter
// one in turn; and those that cannot be followed are refused.
func TestInnerDomainsMany(t *testing.T) {
	testenv.Need(t, "landlock", "python3")
	dir := realTemp(t)
	c := start(t, workspace(dir, protect("**/.envrc")), "writes", "python3", "-c", "import os; os.chdir('"+dir+"')"+manyScript)
	_ = c.cmd.Wait()
	if out := strings.TrimSpace(c.out.String()); out != "0 1 True True" {
		t.Errorf("%s", out)
	}
}
