package engine

import (
	"os"
	"sync"
	"testing"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testlog"
	"github.com/cloche-dev/cloche/policy"
)

// N10: commands that come at the same time share one sandbox.
func TestWarmParksOnce(t *testing.T) {
	testenv.Need(t, "userns")
	dir := t.TempDir()
	e, err := New(Config{Policy: policy.Workspace(dir).With(policy.WithBackend("native")), Workspace: dir, Warm: true,
		Snapshot: Collect, Environ: os.Environ, Granted: func() []policy.Option { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	sandboxes := make([]*park, 64)
	var wait sync.WaitGroup
	for i := range sandboxes {
		wait.Go(func() { sandboxes[i] = sandboxOf(t, e) })
	}
	wait.Wait()
	for i, s := range sandboxes {
		if s == nil || s != sandboxes[0] {
			t.Fatalf("command %d has another sandbox than the first one", i)
		}
	}
	e.Refresh()
	if sandboxOf(t, e) == sandboxes[0] {
		t.Error("after Refresh: the same sandbox")
	}
}

// sandboxOf runs a command and returns where it ran.
func sandboxOf(t *testing.T, e *Engine) *park {
	r, err := e.Start(t.Context(), &Command{Args: []string{"true"}, Run: runlog.New(&testlog.Memory{}, audit.Event{})})
	if err != nil {
		t.Error(err)
		return nil
	}
	if o, err := r.Wait(); err != nil || o.ExitCode != 0 {
		t.Errorf("%+v %v", o, err)
	}
	return r.park
}
