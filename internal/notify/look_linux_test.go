//go:build amd64 || arm64

package notify

import (
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// looked starts a command whose calls are answered by who waits for it, and waits.
func looked(t *testing.T, config *Config, d time.Duration, groups, script string) (c *confined, ended bool) {
	t.Helper()
	c, socket := launch(t, groups, "sh", "-c", script)
	defer unix.Close(socket)
	listener, err := ReceiveListener(socket)
	if err != nil {
		_ = c.cmd.Wait()
		t.Fatalf("no listener: %v\n%s", err, &c.out)
	}
	c.serve(t)(Serve(listener), nil)
	if config != nil {
		if err := c.broker.Begin(*config, -1); err != nil {
			t.Fatal(err)
		}
	}
	pidfd, err := unix.PidfdOpen(c.cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	began := time.Now()
	if c.broker.Look(pidfd, time.Now().Add(d)) {
		return c, true
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, max(0, int(time.Until(began.Add(d)).Milliseconds())))
	return c, err == nil && n == 1
}

// N10: a command that only reads is answered by who waits for it.
func TestLook(t *testing.T) {
	dir := realTemp(t)
	if err := os.WriteFile(dir+"/file", []byte("text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := workspace(dir)
	c, ended := looked(t, &config, testenv.Patience, "reads", "read line <"+dir+"/file && echo got $line")
	if err := c.cmd.Wait(); err != nil || !ended || c.out.String() != "got text\n" {
		t.Errorf("ended: %v, %v, %q", ended, err, c.out.String())
	}
	if c.broker.thread != nil {
		t.Error("another thread was woken for it")
	}
}

// N10: the null device is opened for writing by commands that change nothing.
func TestLookAtNull(t *testing.T) {
	config := workspace(realTemp(t))
	config.Masks = sync.OnceValue((&plan.Plan{Paths: []plan.Path{{Path: "/dev", Kind: host.Dir, Access: policy.Write}}}).Masks)
	script := "echo x >/dev/null && echo x >>/dev/null && echo x <>/dev/null >&0 && echo written"
	c, ended := looked(t, &config, testenv.Patience, "reads", script)
	if err := c.cmd.Wait(); err != nil || !ended || c.out.String() != "written\n" {
		t.Errorf("ended: %v, %v, %q", ended, err, c.out.String())
	}
	if c.broker.thread != nil {
		t.Error("another thread was woken for it")
	}
}

// A call that is more than a look is carried out by the broker's thread, and so is
// everything after it.
func TestLookThenChange(t *testing.T) {
	dir := realTemp(t)
	config := workspace(dir, protect(dir+"/no*"))
	c, ended := looked(t, &config, testenv.Patience, "reads", "cd "+dir+"; umask 077; echo x >yes; echo x >no; cat yes; ls")
	err := c.cmd.Wait()
	if _, stat := os.Stat(dir + "/no"); !ended || err != nil || stat == nil {
		t.Errorf("ended: %v, %v, %q", ended, err, c.out.String())
	}
	info, stat := os.Stat(dir + "/yes")
	if stat != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, stat)
	}
	if err := c.broker.Close(); err != nil {
		t.Error(err)
	}
	if denied, _ := c.broker.Denied(); len(denied) != 1 || denied[0].Path != dir+"/no" {
		t.Errorf("%+v", denied)
	}
}

// A command that runs on is answered after the timeout.
func TestLookThenAttend(t *testing.T) {
	dir := realTemp(t)
	config := workspace(dir)
	c, ended := looked(t, &config, 50*time.Millisecond, "reads", "sleep 0.3; echo x >"+dir+"/file")
	if ended || c.broker.thread == nil {
		t.Errorf("ended: %v, there is a thread: %v", ended, c.broker.thread != nil)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, c.out.String())
	}
	if _, err := os.Stat(dir + "/file"); err != nil {
		t.Error(err)
	}
}

// F12 W7: whoever never stops asking does not keep the caller from watching the limits.
func TestLookEnds(t *testing.T) {
	dir := realTemp(t)
	config := workspace(dir)
	began := time.Now()
	script := "for i in 1 2 3 4 5 6 7 8; do while [ ! -e " + dir + "/end ]; do read x </etc/passwd; done & done; wait"
	c, ended := looked(t, &config, 200*time.Millisecond, "reads", script)
	if ended || time.Since(began) > testenv.Patience {
		t.Errorf("ended: %v, after %v", ended, time.Since(began))
	}
	if err := os.WriteFile(dir+"/end", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait()
}

// Who was not told what to hold allows nothing, wherever it is answered.
func TestLookUntold(t *testing.T) {
	dir := realTemp(t)
	c, _ := looked(t, nil, testenv.Patience, "reads", "echo x > "+dir+"/file")
	if err := c.cmd.Wait(); err == nil {
		t.Error("the command could write")
	}
	if _, err := os.Stat(dir + "/file"); err == nil {
		t.Error("there is a file")
	}
}
