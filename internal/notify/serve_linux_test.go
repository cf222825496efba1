//go:build amd64 || arm64

package notify

import (
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// served starts a command, receives its listener, and answers its calls after that.
// Without a config the broker has no rules.
func served(t *testing.T, config *Config, groups, script string) *confined {
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
	c.broker.Attend()
	return c
}

// A command that only reads.
func TestServeReads(t *testing.T) {
	dir := realTemp(t)
	if err := os.WriteFile(dir+"/file", []byte("text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := workspace(dir)
	c := served(t, &config, "reads", "read line <"+dir+"/file && echo got $line")
	if err := c.cmd.Wait(); err != nil || c.out.String() != "got text\n" {
		t.Errorf("%v, %q", err, c.out.String())
	}
}

// The null device is opened for writing by commands that change nothing.
func TestServeNull(t *testing.T) {
	config := workspace(realTemp(t))
	config.Masks = sync.OnceValue(func() *judge.Masks {
		return judge.NewMasks(&plan.Plan{Paths: []plan.Path{{Path: "/dev", Kind: hostfs.Dir, Access: policy.Write}}})
	})
	script := "echo x >/dev/null && echo x >>/dev/null && echo x <>/dev/null >&0 && echo written"
	c := served(t, &config, "reads", script)
	if err := c.cmd.Wait(); err != nil || c.out.String() != "written\n" {
		t.Errorf("%v, %q", err, c.out.String())
	}
}

// Changes are made for the command, with its umask, unless a rule denies them.
func TestServeChange(t *testing.T) {
	dir := realTemp(t)
	config := workspace(dir, protect(dir+"/no*"))
	c := served(t, &config, "reads", "cd "+dir+"; umask 077; echo x >yes; echo x >no; cat yes; ls")
	err := c.cmd.Wait()
	if _, stat := os.Stat(dir + "/no"); err != nil || stat == nil {
		t.Errorf("%v, %q", err, c.out.String())
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

// A broker without rules allows nothing.
func TestServeWithoutRules(t *testing.T) {
	dir := realTemp(t)
	c := served(t, nil, "reads", "echo x > "+dir+"/file")
	if err := c.cmd.Wait(); err == nil {
		t.Error("the command could write")
	}
	if _, err := os.Stat(dir + "/file"); err == nil {
		t.Error("there is a file")
	}
}
