package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/cli"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// asCloche makes the test binary the command.
const asCloche = "CLOCHE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCloche) != "" {
		os.Exit(cli.Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// kills is how often the command is killed, for each user.
const kills = 60

// F12: SIGKILL at any moment, from before the sandbox is made to long after,
// leaves no process, mount, file or folder.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel() // it mostly waits
	testenv.Need(t, "bwrap")
	testenv.AlsoAsUser(t)
	v := newVictim(t)
	v.flags = []string{"--hide", v.ws + "/secrets", "--protect", v.ws + "/.git/hooks"}
	v.killOften(t)
}

// F12 N4: nor does it where there is no pid namespace that ends with its pid 1.
func TestKilledAtAnyMomentUnderLandlock(t *testing.T) {
	t.Parallel() // it mostly waits
	testenv.Need(t, "landlock")
	testenv.AlsoAsUser(t)
	v := newVictim(t)
	v.flags = []string{"--backend", "landlock", "--best-effort", "--protect", v.ws + "/.git/hooks"}
	v.killOften(t)
}

// F12 L5: nor does it while its network is being made, or is used.
func TestKilledAtAnyMomentWithNetwork(t *testing.T) {
	t.Parallel() // it mostly waits
	testenv.Need(t, "bwrap", "userns")
	testenv.AlsoAsUser(t)
	for _, backend := range []string{"native", "bwrap"} {
		t.Run(backend, func(t *testing.T) {
			v := newVictim(t)
			v.flags = []string{"--backend", backend, "--net", "user", "--allow", "*"}
			v.killOften(t)
		})
	}
}

func (v victim) killOften(t *testing.T) {
	t.Helper()
	before := v.left(t)
	started := 0
	for i := range kills {
		mark := fmt.Sprintf("%d.%09d", 1000+i, rand.IntN(1e9))
		// Half of them while the sandbox is being made, half later.
		after := rand.N(20 * time.Millisecond)
		if i%2 == 1 {
			after = rand.N(150 * time.Millisecond)
		}
		if v.killed(t, mark, after) {
			started++
		}
		if left := gone(mark); len(left) > 0 {
			t.Fatalf("kill %d: processes are left: %q", i, left)
		}
		if after := v.left(t); after != before {
			t.Fatalf("kill %d: something is left:\nbefore\n%s\nafter\n%s", i, before, after)
		}
	}
	t.Logf("the command ran in %d of %d", started, kills)
}

// A victim is a workspace with rules in it, and a home and a folder for
// temporary files that are nobody else's. The flags are what it is run with.
type victim struct {
	base, ws, home, tmp, ready string
	flags                      []string
}

func newVictim(t *testing.T) victim {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	v := victim{base: base, ws: base + "/ws", home: base + "/home", tmp: base + "/tmp", ready: base + "/ws/ready"}
	for _, d := range []string{v.ws + "/secrets", v.ws + "/.git/hooks", v.home + "/.ssh", v.home + "/.config", v.home + "/.local/share", v.tmp} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// killed starts the command, kills it after that time, and reports whether what
// it runs had started.
func (v victim) killed(t *testing.T, mark string, after time.Duration) bool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := "trap '' TERM HUP INT; : >ready; (setsid sleep " + mark + " &); setsid sleep " + mark + " & sleep " + mark
	args := append([]string{"run", "--workspace", v.ws, "--ro", v.home, "--bind", v.home + ":/" + mark + ":ro"}, v.flags...)
	cmd := exec.Command(self, append(args, "--", "sh", "-c", script)...)
	cmd.Env = []string{asCloche + "=1", "HOME=" + v.home, "TMPDIR=" + v.tmp, "PATH=" + os.Getenv("PATH")}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after) // the moment of the kill is what varies
	if err := cmd.Process.Kill(); err != nil {
		t.Fatalf("cloche was gone already: %v: %s", err, stderr.String())
	}
	_ = cmd.Wait()
	for line := range strings.Lines(stderr.String()) {
		if strings.HasPrefix(line, "cloche: ") && !strings.Contains(line, " is not enforced: ") {
			t.Fatalf("cloche failed: %s", line)
		}
	}
	_, err = os.Stat(v.ready)
	_ = os.Remove(v.ready)
	return err == nil
}

// gone waits until no process has the mark in its arguments.
func gone(mark string) (left []string) {
	testenv.Becomes(func() bool {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		left = nil
		for _, f := range files {
			if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(mark)) {
				left = append(left, strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		return left == nil
	})
	return left
}

// left lists the files of the victim and the mounts of the host that name it.
// The audit log and what is known about the machine are meant to stay.
func (v victim) left(t *testing.T) string {
	t.Helper()
	// The command may have written this before it noticed its end.
	_ = os.Remove(v.ready)
	var b strings.Builder
	err := filepath.WalkDir(v.base, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == v.home+"/.local/state" || p == v.home+"/.cache" {
			return fs.SkipDir
		}
		fmt.Fprintf(&b, "%s %v\n", p, d.Type())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(table) {
		if bytes.Contains(line, []byte(v.base)) {
			b.Write(line)
		}
	}
	return b.String()
}
