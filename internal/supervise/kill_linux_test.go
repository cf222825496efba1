package supervise

import (
	"bufio"
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// stubborn is a script whose processes ignore signals; one has a session of its
// own, one is a daemon that forked twice.
func stubborn(mark, ready string) string {
	return "trap '' TERM INT HUP; echo partial; sleep " + mark + " & " +
		"setsid sleep " + mark + " & (setsid sh -c 'sleep " + mark + " & sleep " + mark + "' &); " +
		"sleep 0.2; echo >" + ready + "; sleep " + mark
}

// tame is one that stays within its session: all that can be found without a
// pid namespace once parents are gone.
func tame(mark, ready string) string {
	return "trap '' TERM INT HUP; echo partial; sleep " + mark + " & (sleep " + mark + " &) ; echo >" + ready + "; sleep " + mark
}

// F12
func TestTimeoutKillsTheTree(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		mark, ready := marker(), tempDir(t)+"/ready"
		s := spec(scriptFor(t, mark, ready))
		s.Timeout = time.Second
		o, out := run(t, s)
		if !o.TimedOut || o.Canceled || o.ExitCode != 137 || out != "partial\n" {
			t.Errorf("%+v, output %q", o, out)
		}
		if left := alive(mark); len(left) > 0 {
			t.Errorf("left after Wait: %q", left)
		}
	})
}

func scriptFor(t *testing.T, mark, ready string) string {
	if strings.HasSuffix(t.Name(), "/none") {
		return tame(mark, ready)
	}
	return stubborn(mark, ready)
}

// F12
func TestCancelKillsTheTree(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		mark, ready := marker(), tempDir(t)+"/ready"
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var out bytes.Buffer
		s := spec(scriptFor(t, mark, ready))
		s.Stdout = &out
		p := beginWith(t, ctx, s)
		waitFor(t, ready)
		cancel()
		if o := wait(t, p); !o.Canceled || o.TimedOut || out.String() != "partial\n" {
			t.Errorf("%+v, output %q", o, out.String())
		}
		if left := alive(mark); len(left) > 0 {
			t.Errorf("left after Wait: %q", left)
		}
	})
}

// A run that is canceled while the sandbox is being made is canceled, too.
func TestCancelDuringSetup(t *testing.T) {
	testenv.Need(t, "bwrap")
	for range 50 {
		mark := marker()
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(rand.N(10*time.Millisecond), cancel)
		p, err := Start(ctx, noLimits(bwrapLaunch("sleep "+mark, 0, false)))
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("Start: %v", err)
			}
			continue
		}
		if o := wait(t, p); !o.Canceled {
			t.Errorf("%+v", o)
		}
		if left := alive(mark); len(left) > 0 {
			t.Errorf("left after Wait: %q", left)
		}
	}
}

// A command that stops itself does not stop its limits, nor who watches it.
func TestStoppedCommandTimesOut(t *testing.T) {
	testenv.Need(t, "bwrap")
	for _, signal := range []string{"STOP", "TSTP", "TTIN"} {
		spec := noLimits(bwrapLaunch("kill -"+signal+" $$; sleep 60", 0, false))
		spec.Timeout = 300 * time.Millisecond
		p := begin(t, spec)
		stop := Forward(p)
		if out := wait(t, p); !out.TimedOut {
			t.Errorf("%s: %+v", signal, out)
		}
		stop()
	}
}

// With a delay the command is warned and may end by itself.
func TestKillDelay(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		s := spec("trap 'echo warned; exit 7' TERM; while :; do sleep 0.02; done")
		s.Timeout, s.KillDelay = 500*time.Millisecond, 30*time.Second
		if o, out := run(t, s); !o.TimedOut || o.ExitCode != 7 || out != "warned\n" {
			t.Errorf("%+v, output %q", o, out)
		}
		s = spec("trap '' TERM; while :; do sleep 0.02; done")
		s.Timeout, s.KillDelay = 300*time.Millisecond, 100*time.Millisecond
		if o, _ := run(t, s); !o.TimedOut || o.ExitCode != 137 {
			t.Errorf("%+v", o)
		}
	})
}

// What the command leaves behind in the sandbox ends with it; Wait does not
// wait for pipes that it holds.
func TestBackgroundJobsDoNotHoldWait(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		mark := marker()
		s := spec("sleep " + mark + " & echo done; exit 5")
		s.Timeout = 40 * time.Second
		o, out := run(t, s)
		if o.TimedOut || o.ExitCode != 5 || out != "done\n" {
			t.Errorf("%+v, output %q", o, out)
		}
		left := alive(mark)
		if strings.HasSuffix(t.Name(), "/bwrap") && len(left) > 0 {
			t.Errorf("left after Wait: %q", left)
		}
		for _, pid := range pidsOf(mark) {
			p, _ := os.FindProcess(pid)
			p.Kill()
		}
	})
}

func pidsOf(mark string) (pids []int) {
	for _, s := range allProcesses() {
		b, _ := os.ReadFile("/proc/" + itoa(s.pid) + "/cmdline")
		if string(b) == "sleep\x00"+mark+"\x00" {
			pids = append(pids, s.pid)
		}
	}
	return pids
}

// F12: killing cloche itself, at any moment, leaves nothing.
func TestSupervisorIsKilled(t *testing.T) {
	testenv.Need(t, "bwrap")
	rounds := 120
	if testing.Short() {
		rounds = 20
	}
	mark := marker()
	for range rounds {
		cmd := exec.Command(os.Args[0], "(setsid sleep "+mark+" &); sleep "+mark)
		cmd.Env = append(os.Environ(), helperEnv+"=die")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		bufio.NewReader(out).ReadString('\n')
		time.Sleep(rand.N(30 * time.Millisecond)) // the moment of the kill is what varies
		cmd.Process.Kill()
		cmd.Wait()
	}
	testenv.Eventually(t, "no process of a killed run is left", func() bool { return len(alive(mark)) == 0 })
}

// F12: and so does killing the launcher.
func TestLauncherIsKilled(t *testing.T) {
	testenv.Need(t, "bwrap")
	mark, ready := marker(), tempDir(t)+"/ready"
	p := begin(t, noLimits(bwrapLaunch(stubborn(mark, ready), 0, false)))
	waitFor(t, ready)
	p.child.proc.Kill()
	if o := wait(t, p); o.ExitCode != 137 {
		t.Errorf("%+v", o)
	}
	if left := alive(mark); len(left) > 0 {
		t.Errorf("left after Wait: %q", left)
	}
}
