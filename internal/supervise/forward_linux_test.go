package supervise

import (
	"bufio"
	"bytes"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// A signal that comes before the command runs ends who waits for a start that
// hangs, as if nobody had caught it.
func TestSignalBeforeTheStart(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
		cmd := helperCommand("early", ":")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		watchdog := time.AfterFunc(testenv.Patience, func() { _ = cmd.Process.Kill() })
		if err := cmd.Process.Signal(sig); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
		watchdog.Stop()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != sig {
			t.Errorf("%v: %v", sig, cmd.ProcessState)
		}
	}
}

// Signals that were caught early reach the command once it runs.
func TestCatcherPassesSignalsOn(t *testing.T) {
	c := Catch()
	defer c.Stop()
	spec := noLimits(noneLaunch("echo ready; exec sleep 60"))
	ready := &notifier{seen: make(chan struct{})}
	spec.Stdout = ready
	p := begin(t, spec)
	c.Forward(p)
	<-ready.seen
	// More than once: the first may come before it is caught, and Go drops it then.
	testenv.Eventually(t, "the command gets the signal", func() bool {
		select {
		case <-p.Done():
			return true
		default:
			return unix.Kill(os.Getpid(), unix.SIGUSR1) != nil
		}
	})
	if o := wait(t, p); o.Signal != unix.SIGUSR1 {
		t.Errorf("%+v", o)
	}
	c.Stop()
	c.Stop() // once more does nothing
}

// A notifier tells when something was written to it.
type notifier struct {
	seen chan struct{}
	text bytes.Buffer
}

func (n *notifier) Write(b []byte) (int, error) {
	if n.text.Len() == 0 {
		close(n.seen)
	}
	return n.text.Write(b)
}
