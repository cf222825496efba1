package apitest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// N10 F12: a program that can be executed and not read hides its namespaces from an
// ordinary user. It still ends with its command, and the same program of a
// command that still runs does not.
func TestWarmEndsUnreadable(t *testing.T) {
	testenv.Need(t, "root") // to make such a program
	testenv.Need(t, "userns")
	dir := testenv.UserDir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	copyProgram(t, self, dir+"/test", 0o755)
	copyProgram(t, sleep, dir+"/unreadable", 0o711)
	cmd := exec.Command(dir+"/test", helperWord, "unreadable")
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: testenv.AsUser(t)}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func copyProgram(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, mode)
	}
	if err == nil {
		err = os.Chmod(to, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// leaveUnreadable is what the ordinary user does, in the folder with the program.
func leaveUnreadable() (err error) {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := cloche.Open(ctx, policy.Workspace(dir).With(policy.WithBackend("native")), cloche.WithWorkspace(dir), cloche.WithWarmFast())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	stays := s.Command(ctx, "sh", "-c", "./unreadable 6111; true")
	if err := stays.Start(); err != nil {
		return err
	}
	testenv.Becomes(func() bool { return len(unreadables("6111")) > 0 || ctx.Err() != nil })
	if err := leaveOne(ctx, s); err != nil {
		return err
	}
	if n := len(unreadables("6111")); n != 1 {
		return fmt.Errorf("%d processes of the command that still runs, want 1", n)
	}
	return nil
}

// leaveOne runs a command that leaves such a process, and looks for it.
func leaveOne(ctx context.Context, s *cloche.Session) error {
	c := s.Command(ctx, "sh", "-c", "(setsid ./unreadable 6222 >/dev/null 2>&1 &); while [ ! -e go ]; do sleep 0.02; done")
	if err := c.Start(); err != nil {
		return err
	}
	testenv.Becomes(func() bool { return len(unreadables("6222")) > 0 || ctx.Err() != nil })
	for _, folder := range unreadables("6222") { // or there is nothing to find out here
		if _, err := os.Stat(folder + "/ns/uts"); !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("the namespaces of the process can be seen: %v", err)
		}
	}
	if err := os.WriteFile("go", nil, 0o644); err != nil {
		return err
	}
	if err := c.Wait(); err != nil {
		return err
	}
	if left := unreadables("6222"); len(left) > 0 {
		return fmt.Errorf("left: %v", left)
	}
	return nil
}

// unreadables are the folders in /proc of those that have the argument.
func unreadables(arg string) (found []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if line, err := os.ReadFile(f); err == nil && string(line) == "./unreadable\x00"+arg+"\x00" {
			found = append(found, filepath.Dir(f))
		}
	}
	return found
}
