package main

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// reviewFiles is how many files of the host the command of a review replaces, and how many it deletes.
const reviewFiles = 200

// N5: SIGKILL of cloche, of its command, of the whole process group, or of an apply, at any moment: each file of the host is the old or the
// new one, every change that the command had made is in the review, and the review can be continued and applied. CLOCHE_TEST_REVIEW_KILLS is how often.
func TestReviewKilledAtAnyMoment(t *testing.T) {
	testenv.Need(t, "overlayfs", "userns")
	testenv.AlsoAsUser(t)
	kills, err := strconv.Atoi(os.Getenv("CLOCHE_TEST_REVIEW_KILLS"))
	if err != nil {
		kills = 12
	}
	const seed = 1
	v := &reviewVictim{victim: newVictim(t), t: t, random: rand.New(rand.NewPCG(seed, uint64(os.Getuid())))}
	for i := range reviewFiles {
		for _, name := range []string{"old", "gone"} {
			if err := os.WriteFile(fmt.Sprintf("%s/%s%d", v.ws, name, i), []byte("old\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	started, applied, before := 0, 0, v.host()
	for i := range kills {
		if i%4 == 3 {
			if v.killApply() {
				applied++
			}
			continue
		}
		host := v.host()
		if v.killRun([]string{"cloche", "command", "group"}[i%4]) {
			started++
		}
		if now := v.host(); !maps.Equal(now, host) {
			t.Fatalf("kill %d changed the host: %s", i, filesDiffer(now, host))
		}
	}
	t.Logf("the command had started in %d of %d runs, and made %d changes; %d of %d applies were killed before their end", started, kills-kills/4, v.step, applied, kills/4)
	if maps.Equal(v.host(), before) {
		t.Error("nothing was applied")
	}
}

// A reviewVictim is killed again and again while its command changes one file after the other.
type reviewVictim struct {
	victim
	t      *testing.T
	random *rand.Rand
	step   int // the next change
	marks  int
}

// reviewScript makes a change and says so, from the step in $1 on.
const reviewScript = `n=$1; while :; do
case $((n % 3)) in
0) echo $n > tmp; mv tmp new$n ;;
1) echo $n > tmp; mv tmp old$((n % 200)) ;;
2) rm -f gone$((n % 200)) ;;
esac; echo $n; n=$((n + 1)); done`

// change does to a map of files what a step of the script does.
func (v *reviewVictim) change(files map[string]string, n int) {
	switch n % 3 {
	case 0:
		files[fmt.Sprintf("new%d", n)] = fmt.Sprintf("%d\n", n)
	case 1:
		files[fmt.Sprintf("old%d", n%reviewFiles)] = fmt.Sprintf("%d\n", n)
	case 2:
		delete(files, fmt.Sprintf("gone%d", n%reviewFiles))
	}
}

func (v *reviewVictim) cloche(args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	self, err := os.Executable()
	if err != nil {
		v.t.Fatal(err)
	}
	var out, errs bytes.Buffer
	c := exec.Command(self, args...)
	c.Dir, c.Stdout, c.Stderr = v.ws, &out, &errs
	c.Env = []string{asCloche + "=1", "HOME=" + v.home, "TMPDIR=" + v.tmp, "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c, &out, &errs
}

// must runs cloche to its end.
func (v *reviewVictim) must(args ...string) string {
	v.t.Helper()
	c, out, errs := v.cloche(args...)
	if err := c.Run(); err != nil {
		v.t.Fatalf("cloche %q: %v: %s%s", args, err, out, errs)
	}
	return out.String()
}

// host returns the files of the host.
func (v *reviewVictim) host() map[string]string {
	v.t.Helper()
	names, err := filepath.Glob(v.ws + "/[a-z]*")
	if err != nil {
		v.t.Fatal(err)
	}
	files := map[string]string{}
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil {
			files[filepath.Base(name)] = string(text)
		}
	}
	delete(files, "tmp")
	return files
}

// inside returns the files that a command of the review sees.
func (v *reviewVictim) inside() map[string]string {
	v.t.Helper()
	out := v.must("run", "--backend", "native", "--review", "--", "sh", "-c", "grep -Hs '' [a-z]* || true")
	files := map[string]string{}
	for line := range strings.Lines(out) {
		name, text, _ := strings.Cut(line, ":")
		files[name] = text
	}
	delete(files, "tmp")
	return files
}

// moment is when to kill: half of them while the sandbox is being made, half later.
func (v *reviewVictim) moment(most time.Duration) time.Duration {
	if v.random.IntN(2) == 0 {
		most /= 8
	}
	return time.Duration(v.random.Int64N(int64(most)))
}

// killRun starts the command and kills it, and reports whether it had made a change. What it had made is in the review.
func (v *reviewVictim) killRun(what string) bool {
	t := v.t
	t.Helper()
	want := v.inside()
	v.marks++
	mark := fmt.Sprintf("mark-%d-%d", os.Getpid(), v.marks)
	c, out, errs := v.cloche("run", "--backend", "native", "--review", "--", "sh", "-c", reviewScript, mark, strconv.Itoa(v.step))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(v.moment(400 * time.Millisecond)) // the moment of the kill is what varies
	pid := c.Process.Pid
	switch what {
	case "group":
		pid = -pid
	case "command":
		if inner := shellWith(mark); inner > 0 {
			pid = inner
		}
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %s: %v: %s", what, err, errs)
	}
	_ = c.Wait()
	if left := gone(mark); len(left) > 0 {
		t.Fatalf("after a kill of the %s there are %q", what, left)
	}
	for line := range strings.Lines(errs.String()) {
		if strings.HasPrefix(line, "cloche: ") && !strings.Contains(line, "what the command wrote") {
			t.Fatalf("cloche failed: %s", line)
		}
	}
	first := v.step
	for line := range strings.Lines(out.String()) {
		if line == fmt.Sprintf("%d\n", v.step) {
			v.change(want, v.step)
			v.step++
		}
	}
	// cloche may have had no time to pass on the last of what the command said. More than a few are not missing.
	const unsaid = 30
	got := v.inside()
	for said := v.step; !maps.Equal(got, want); v.step++ {
		if v.step == said+unsaid {
			t.Fatalf("after a kill of the %s at step %d the review has: %s", what, said, filesDiffer(got, want))
		}
		v.change(want, v.step)
	}
	v.must("review", "--json")
	return v.step > first
}

// killApply kills an apply, and reports whether it was before its end. Repeated, it applies everything.
func (v *reviewVictim) killApply() bool {
	t := v.t
	t.Helper()
	before, want := v.host(), v.inside()
	c, out, errs := v.cloche("review", "apply")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(v.moment(150 * time.Millisecond)) // the moment of the kill is what varies
	if err := c.Process.Kill(); err != nil {
		t.Logf("the apply had ended: %v", err)
	}
	err := c.Wait()
	if code := c.ProcessState.ExitCode(); code > 0 {
		t.Fatalf("the apply failed: %v: %s%s", err, out, errs)
	}
	for name, text := range v.host() {
		if text != before[name] && text != want[name] {
			t.Fatalf("after a killed apply %s has %q, want %q or %q", name, text, before[name], want[name])
		}
	}
	for name := range before {
		if _, kept := want[name]; !kept {
			continue
		}
		if _, err := os.Lstat(filepath.Join(v.ws, name)); err != nil {
			t.Fatalf("after a killed apply: %v", err)
		}
	}
	if now := v.inside(); !maps.Equal(now, want) {
		t.Fatalf("after a killed apply the command sees: %s", filesDiffer(now, want))
	}
	v.must("review", "apply")
	if now := v.host(); !maps.Equal(now, want) {
		t.Fatalf("after a repeated apply the host has: %s", filesDiffer(now, want))
	}
	if list := v.must("review", "--json"); list != "" {
		t.Fatalf("after a repeated apply the review has %s", list)
	}
	return err != nil
}

// shellWith returns the process of the shell that has an argument, or 0.
func shellWith(mark string) int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err == nil && bytes.HasPrefix(line, []byte("sh\x00")) && bytes.Contains(line, []byte(mark)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			return pid
		}
	}
	return 0
}

// filesDiffer names the files that differ.
func filesDiffer(got, want map[string]string) string {
	var b strings.Builder
	for name, text := range got {
		if other, ok := want[name]; !ok || other != text {
			fmt.Fprintf(&b, "%s is %q, want %q; ", name, text, other)
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			fmt.Fprintf(&b, "%s is missing; ", name)
		}
	}
	return b.String()
}
