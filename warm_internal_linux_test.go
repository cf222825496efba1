package cloche

import (
	"sync"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// N10: commands that come at the same time share one sandbox.
func TestWarmParksOnce(t *testing.T) {
	testenv.Need(t, "userns")
	dir := t.TempDir()
	s, err := Open(t.Context(), policy.Workspace(dir).With(policy.WithBackend("native")), WithWorkspace(dir), Warm())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	parks := make([]*park, 64)
	var wait sync.WaitGroup
	for i := range parks {
		wait.Go(func() {
			c := s.Command(t.Context(), "true")
			if err := c.Run(); err != nil {
				t.Error(err)
			}
			parks[i] = c.park
		})
	}
	wait.Wait()
	for i, p := range parks {
		if p == nil || p != parks[0] {
			t.Fatalf("command %d has another sandbox than the first one", i)
		}
	}
	s.Refresh()
	c := s.Command(t.Context(), "true")
	if err := c.Run(); err != nil || c.park == parks[0] {
		t.Errorf("after Refresh: %v, another sandbox: %v", err, c.park != parks[0])
	}
}
