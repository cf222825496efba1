//go:build unix

package testenv

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// UserID is the uid and gid of the ordinary user for tests of root. It needs no account.
const UserID = 54321

// ordinary is the credential of that user.
func ordinary() *syscall.Credential {
	return &syscall.Credential{Uid: UserID, Gid: UserID, Groups: []uint32{}}
}

// lacksUser tries to become the ordinary user, and returns why it cannot.
func lacksUser() string {
	if os.Geteuid() != 0 {
		return ""
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		return err.Error()
	}
	cmd := exec.Command(sh, "-c", ":")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ordinary()}
	if err := cmd.Run(); err != nil {
		return "root cannot become another user here: " + err.Error()
	}
	return ""
}

// AsUser returns the credential that makes a child an ordinary user, or nil if the test
// already runs as one.
func AsUser(t testing.TB) *syscall.Credential {
	t.Helper()
	Need(t, "user")
	if os.Geteuid() != 0 {
		return nil
	}
	return ordinary()
}

// UserDir returns a temporary folder that belongs to the user of [AsUser]. Another user could
// not access t.TempDir.
func UserDir(t testing.TB) string {
	t.Helper()
	cred := AsUser(t)
	if cred == nil {
		return t.TempDir()
	}
	return folderOf(t, cred)
}

// folderOf returns a temporary folder that belongs to another user.
func folderOf(t testing.TB, cred *syscall.Credential) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cloche-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// rerunVariable marks the process that AlsoAsUser started.
const rerunVariable = "CLOCHE_TEST_AS_USER"

// followsVariable says that all tests will run again as an ordinary user with an account.
const followsVariable = "CLOCHE_TEST_USER_FOLLOWS"

// passedOn are variables that the second run inherits. The CLOCHE_DIFF ones say which cases a
// fuzzer makes, and for how long; the REVIEW one how often an apply is killed.
var passedOn = []string{"GORACE", "PATH", "CLOCHE_TEST_REVIEW_KILLS", "CLOCHE_DIFF_SEED", "CLOCHE_DIFF_TIME"}

// AlsoAsUser runs the calling top-level test a second time as an ordinary user, in a new
// process, if the test runs as root. It does nothing for an ordinary user, or if scripts/test
// runs all tests as one afterwards. The second run works in a new folder, which is also its
// HOME, so the test must not read files of its package.
func AlsoAsUser(t *testing.T) {
	t.Helper()
	rerun(t, AsUser)
}

// AlsoAsAccount is AlsoAsUser for programs that need a user with an entry in /etc/passwd, such
// as dbus-daemon and ssh.
func AlsoAsAccount(t *testing.T) {
	t.Helper()
	rerun(t, func(t testing.TB) *syscall.Credential {
		Need(t, "user")
		for _, name := range []string{"cloche-test", "daemon", "bin"} {
			if a, err := user.Lookup(name); err == nil {
				uid, _ := strconv.ParseUint(a.Uid, 10, 32)
				gid, _ := strconv.ParseUint(a.Gid, 10, 32)
				return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{}}
			}
		}
		t.Fatal("/etc/passwd has none of the usual accounts")
		return nil
	})
}

// UserFollows reports whether this is root's run, and all tests will run again as an ordinary user.
func UserFollows() bool { return os.Geteuid() == 0 && os.Getenv(followsVariable) != "" }

// rerun runs the test as another user, unless that was done or will be done.
func rerun(t *testing.T, who func(testing.TB) *syscall.Credential) {
	t.Helper()
	if os.Geteuid() != 0 || os.Getenv(rerunVariable) != "" || UserFollows() {
		return
	}
	name := t.Name()
	t.Run("as-user", func(t *testing.T) {
		cred := who(t)
		dir := folderOf(t, cred)
		cmd := exec.Command(copySelf(t, dir), "-test.run=^"+name+"$", "-test.count=1", "-test.v")
		cmd.Dir = dir
		cmd.Env = []string{
			rerunVariable + "=1", "HOME=" + dir, "USER=cloche-test", "TMPDIR=" + dir,
			ExpectVariable + "=" + expectedOfUser(os.Getenv(ExpectVariable)),
		}
		for _, name := range passedOn {
			cmd.Env = append(cmd.Env, name+"="+os.Getenv(name))
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		switch {
		case err != nil:
			t.Fatalf("as an ordinary user: %v", err)
		case bytes.Contains(out, []byte("--- SKIP: "+name+" ")):
			t.Skip("skipped as an ordinary user")
		case !bytes.Contains(out, []byte("--- PASS: "+name+" ")):
			t.Fatalf("%s did not run as an ordinary user", name)
		}
	})
}

// expectedOfUser removes "root" from the list of promises.
func expectedOfUser(list string) string {
	features := strings.Split(list, ",")
	return strings.Join(slices.DeleteFunc(features, func(s string) bool { return strings.TrimSpace(s) == "root" }), ",")
}

// copySelf copies the test binary to a folder where an ordinary user can execute it: go test
// builds it in a folder that only its owner can enter.
func copySelf(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	file := filepath.Join(dir, "self.test")
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// notOwn returns why others than root and this user may have made what is in a folder.
func notOwn(dir string) string {
	info, err := os.Lstat(dir)
	if err != nil {
		return err.Error()
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || owner != 0 && int(owner) != os.Getuid() {
		return dir + " is not a folder that only root or this user can change"
	}
	return ""
}
