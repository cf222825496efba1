package backendtest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/policy"
)

var residueCases = []testCase{
	{"residue/normal", []string{"lifetime"}, residueOfRun},
	{"residue/timeout", []string{"lifetime"}, residueOfTimeout},
	{"residue/killed", []string{"lifetime"}, residueOfKill},
	{"residue/git", []string{"lifetime"}, residueInGit},
}

// richOptions hide, protect and grant paths in every way that needs a mount.
func (c *check) richOptions() []policy.Option {
	c.file(secret, c.ws, "secrets/key")
	c.file(secret, c.ws, "env")
	c.file("kept", c.ws, "conf/kept")
	c.file(secret, c.home, ".ssh/id")
	c.dir(c.ws, "ro")
	return []policy.Option{
		policy.HidePaths(c.ws+"/secrets", c.ws+"/env"), policy.ProtectPaths(c.ws + "/conf/kept"), policy.AllowRead(c.ws + "/ro"),
		policy.WithBind(c.outside, "/"+c.token, true),
	}
}

// left describes everything that a run could leave behind: the case's files with their
// modes and contents, and mounts.
func (c *check) left() string {
	var b strings.Builder
	err := filepath.WalkDir(c.base, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v", p, info.Mode())
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(data)
			b.WriteString(" " + hex.EncodeToString(sum[:4]))
		}
		b.WriteString("\n")
		return nil
	})
	c.must(err)
	table, err := os.ReadFile("/proc/self/mountinfo")
	c.must(err)
	for line := range bytes.Lines(table) {
		if bytes.Contains(line, []byte(c.base)) || bytes.Contains(line, []byte(c.token)) {
			b.Write(line)
		}
	}
	return b.String()
}

// unchanged checks that a run left nothing behind.
func (c *check) unchanged(before string) {
	if after := c.left(); after != before {
		c.Errorf("the run left something:\nbefore\n%s\nafter\n%s", before, after)
	}
	c.absent("/" + c.token)
}

// F12: a run leaves no file, folder, mount or process behind.
func residueOfRun(c *check) {
	b := c.box(c.richOptions()...)
	before := c.left()
	c.allowed(b.do(read("/etc/passwd"), read("/"+c.token))[0])
	c.now()
	c.unchanged(before)
}

// F12: a run that was ended leaves nothing behind.
func residueOfTimeout(c *check) {
	b := c.box(append(c.richOptions(), policy.WithLimits(policy.Limits{Time: time.Second}))...)
	before := c.left()
	if r, err := b.probe(op{Do: "sleep", N: 60000}).Capture(); err != nil || !r.TimedOut {
		c.Fatalf("the run gave %+v (%v), want a timeout", r, err)
	}
	c.now()
	c.unchanged(before)
}

// lockName is the file in cloche's state folder that the brokers of all runs lock.
const lockName = "changes.lock"

// An order says what a process runs that will be killed.
type order struct {
	Backend, Workspace, Base, Beat text
	Options                        []text // paths to hide
	Suite                          Options
}

// superviseMain runs a command in a sandbox until this process is killed.
func superviseMain(args []string, entries []backend.Entry) int {
	var o order
	if len(args) != 2 || json.Unmarshal([]byte(args[1]), &o) != nil {
		return 2
	}
	i := slices.IndexFunc(entries, func(e backend.Entry) bool { return e.Backend.Name() == string(o.Backend) })
	if i < 0 {
		fmt.Fprintf(os.Stderr, "backend %q was not given to backendtest.Main\n", o.Backend)
		return 2
	}
	if err := o.run(args[0], entries[i]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (o order) run(mark string, entry backend.Entry) error {
	registry, err := backend.NewRegistry(entry)
	if err != nil {
		return err
	}
	p, err := policy.FromPreset("workspace")
	if err != nil {
		return err
	}
	p = p.With(policy.WithBackend(entry.Backend.Name()), policy.WithRequire(policy.BestEffort), policy.AllowRead(string(o.Base)))
	for _, hidden := range o.Options {
		p = p.With(policy.HidePaths(string(hidden)))
	}
	opts := append(o.Suite.session(), cloche.WithRegistry(registry), cloche.WithWorkspace(string(o.Workspace)))
	s, err := cloche.Open(context.Background(), p, opts...)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	list, err := json.Marshal([]op{{Do: "daemon", Path: o.Beat}, {Do: "say", Data: "ready\n"}, {Do: "heartbeat", Path: o.Beat + "2"}})
	if err != nil {
		return err
	}
	cmd := s.Command(context.Background(), self, probeWord, mark, string(list))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// F12 L5: a run whose supervising process was killed leaves nothing behind.
func residueOfKill(c *check) {
	c.box().probe() // ends the case if the backend declares a gap
	c.file(secret, c.ws, "secrets/key")
	beat := c.file("", c.ws, "beat")
	c.file("", c.ws, "beat2")
	for _, d := range []string{"tmp", ".config", ".cache", ".local/share", ".local/state"} {
		c.dir(c.home, d)
	}
	before := c.left()
	cmd := c.supervisor(order{Backend: text(c.entry.Backend.Name()), Workspace: text(c.ws), Base: text(c.base), Beat: text(beat), Suite: c.options, Options: []text{text(c.ws + "/secrets")}})
	out, err := cmd.StdoutPipe()
	c.must(err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	c.must(cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	c.must(cmd.Process.Kill())
	_ = cmd.Wait()
	if line != "ready\n" {
		c.Fatalf("the supervising process said %q (%v): %s", line, err, stderr.String())
	}
	c.gone()
	c.silent(beat)
	c.must(os.WriteFile(beat, nil, 0o644))
	c.must(os.WriteFile(beat+"2", nil, 0o644))
	// The cache of probes, and the lock that all runs share, do not belong to a run.
	c.must(os.RemoveAll(filepath.Join(c.home, ".cache/cloche")))
	names, _ := os.ReadDir(ownDirs(c.home).State)
	if len(names) == 0 || len(names) == 1 && names[0].Name() == lockName {
		c.must(os.RemoveAll(ownDirs(c.home).State))
	}
	c.unchanged(before)
}

// supervisor prepares a process that carries out the order. It has its own folders for
// everything that a program may write.
func (c *check) supervisor(o order) *exec.Cmd {
	self, err := os.Executable()
	c.must(err)
	text, err := json.Marshal(o)
	c.must(err)
	cmd := exec.CommandContext(c.ctx, self, superviseWord, c.token, string(text))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.home, "TMPDIR=" + filepath.Join(c.home, "tmp")}
	return cmd
}

// N8: a git repository works inside, and is unchanged afterwards.
func residueInGit(c *check) {
	git, err := exec.LookPath("git")
	if err != nil {
		c.Skipf("needs git: %v", err)
	}
	run := func(args ...string) string {
		cmd := exec.Command(git, append([]string{"-C", c.ws, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.home, "GIT_CONFIG_NOSYSTEM=1"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			c.Fatalf("git %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	run("init", "-q")
	c.file(secret, c.ws, "env")
	c.file("text", c.ws, "file")
	run("add", "file")
	run("commit", "-q", "-m", "first")
	before := run("status", "--porcelain=v2", "--branch", "--ignored")
	b := c.box(policy.HidePaths(c.ws+"/env"), policy.ProtectPaths(c.ws+"/.git/hooks", c.ws+"/.git/config"))
	b.do(read("/etc/passwd"))
	if after := run("status", "--porcelain=v2", "--branch", "--ignored"); after != before {
		c.Errorf("git status was %q and is %q", before, after)
	}
	r := b.run("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "safe.directory=*", "commit", "-q", "--allow-empty", "-m", "second")
	if !r.Success() || !strings.Contains(run("log", "--format=%s"), "second") {
		c.Errorf("git commit inside ended with %d: %s", r.ExitCode, r.Stderr)
	}
}
