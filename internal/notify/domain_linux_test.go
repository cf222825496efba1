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
// broker does not do for it, nor for what it starts, also in the background.
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
		(setsid sh -c "sleep 0.2; echo 1 > b/orphan" &) ; sleep 0.6'
		echo 1 > b/after`
	out, _ := run(t, workspace(dir, protect("**/.envrc")), "writes", script)
	for name, want := range map[string]bool{"a/in": true, "a/dir": true, "a/child": true, "b/before": true, "b/after": true,
		"b/out": false, "b/dir": false, "b/child": false, "b/orphan": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v\n%s", name, err, want, out)
		}
	}
	if !strings.Contains(out, "ermission denied") {
		t.Errorf("output: %s", out)
	}
}
