package supervise

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

func itoa(n int) string { return strconv.Itoa(n) }

// W7
func TestOutputLimit(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		mark := marker()
		var out, errs bytes.Buffer
		s := spec("sleep " + mark + " & yes >&2 & yes")
		s.Output, s.Stdout, s.Stderr = 100_001, &out, &errs
		o := wait(t, begin(t, s))
		if !o.Truncated || o.Exceeded != "output" || o.TimedOut || o.ExitCode == 0 {
			t.Errorf("%+v", o)
		}
		if n := out.Len() + errs.Len(); n != 100_001 {
			t.Errorf("%d bytes were delivered, want 100001", n)
		}
		if left := alive(mark); len(left) > 0 {
			t.Errorf("left after Wait: %q", left)
		}
	})
}

// W7: exactly as much as is allowed is not too much; files are counted too.
func TestOutputLimitReached(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		f, err := os.CreateTemp(tempDir(t), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s := spec("printf 12345; printf 67890 >&2")
		s.Output, s.Stdout, s.Stderr = 10, f, f
		if o := wait(t, begin(t, s)); o.Truncated || o.Exceeded != "" || o.ExitCode != 0 {
			t.Errorf("%+v", o)
		}
		if b, _ := os.ReadFile(f.Name()); string(b) != "1234567890" {
			t.Errorf("output %q", b)
		}
	})
}

// A consumer that stops reading ends the command as it would in a pipeline.
func TestWriterIsGone(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		defer w.Close()
		s := spec("yes")
		s.Output, s.Stdout = 1<<40, w
		if o := wait(t, begin(t, s)); o.ExitCode != 141 && o.ExitCode != 1 {
			t.Errorf("%+v", o)
		}
	})
}

// A slow consumer gets everything.
func TestSlowWriter(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		slow := &slowWriter{}
		s := spec("head -c 300000 /dev/zero")
		s.Stdout = slow
		wait(t, begin(t, s))
		if slow.n != 300000 {
			t.Errorf("%d bytes were delivered, want 300000", slow.n)
		}
	})
}

type slowWriter struct{ n int }

func (s *slowWriter) Write(b []byte) (int, error) {
	time.Sleep(30 * time.Millisecond) // slower than the command
	s.n += len(b)
	return len(b), nil
}

func TestMemoryLimit(t *testing.T) {
	testenv.Need(t, "python3")
	each(t, func(t *testing.T, spec func(string) Spec) {
		script := `python3 -c 'import time; x = bytearray(300 << 20); print("got it", flush=True); time.sleep(60)'`
		s := spec(script)
		s.Memory, s.Timeout = 100<<20, 50*time.Second
		if o, _ := run(t, s); o.Exceeded != "memory" || o.TimedOut || o.ExitCode != 137 {
			t.Errorf("%+v", o)
		}
		s = spec(strings.Replace(script, "sleep(60)", "sleep(0.4)", 1))
		s.Memory = 1 << 30
		if o, out := run(t, s); o.Exceeded != "" || o.ExitCode != 0 {
			t.Errorf("within the limit: %+v %s", o, out)
		}
	})
}

func TestProcessLimitIsSampled(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		if os.Getuid() != 0 && strings.HasSuffix(t.Name(), "/bwrap") {
			t.Skip("the init enforces it here")
		}
		s := spec("for i in 1 2 3 4 5 6 7 8 9; do sleep 40 & done; wait")
		s.Processes, s.Timeout = 5, 50*time.Second
		if o, _ := run(t, s); o.Exceeded != "processes" || o.ExitCode != 137 {
			t.Errorf("%+v", o)
		}
	})
}

// The measuring sees threads, grandchildren and orphans.
func TestMeasure(t *testing.T) {
	ready := tempDir(t) + "/ready"
	cmd := exec.Command("sh", "-c", "sleep 40 & sh -c 'sleep 40 & echo >"+ready+"; wait' & wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &child{proc: cmd.Process}
	defer cmd.Wait()
	defer p.killSession()
	waitFor(t, ready)
	testenv.Eventually(t, "four processes are seen", func() bool { return measure(cmd.Process.Pid, false, false).tasks == 4 })
	if u := measure(cmd.Process.Pid, true, true); u.tasks != 3 || u.memory <= 0 {
		t.Errorf("without the root: %+v", u)
	}
	if u := measure(cmd.Process.Pid, false, false); u.memory != 0 {
		t.Errorf("the memory was not asked for: %+v", u)
	}
}

// The first look at a run is early only where it could exceed a limit by then.
func TestFirstSample(t *testing.T) {
	const none = policy.Unlimited
	for _, c := range []struct {
		memory, processes int64
		want              time.Duration
	}{
		{none, none, sampleEvery}, {muchMemory, manyTasks, sampleEvery}, {none, manyTasks, sampleEvery},
		{muchMemory - 1, none, sampleSoon}, {none, manyTasks - 1, sampleSoon}, {0, 0, sampleSoon}, {muchMemory, 1, sampleSoon},
	} {
		if got := (&Spec{Memory: c.memory, Processes: c.processes}).firstSample(); got != c.want {
			t.Errorf("memory %d, processes %d: after %v, want %v", c.memory, c.processes, got, c.want)
		}
	}
}
