package cli

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"
)

// errParentEnded is why a run with --die-with-parent is canceled.
var errParentEnded = errors.New("the program that started cloche has ended")

const (
	// parentPoll is how often the parent is checked.
	parentPoll = 100 * time.Millisecond
	// lingering is how long a run may take to end after its parent. Then cloche exits,
	// and everything that it started with it.
	lingering = killDelay + 3*time.Second
)

// withParent returns a context that ends when the process that started this one does.
// A process whose parent ends gets another parent, which is what is checked. The signal
// that Linux can send instead is for the end of the thread that started this process,
// not of the whole program. A parent that ended before this call is not noticed: the
// process that adopted this one counts as the parent.
func withParent(ctx context.Context) (context.Context, func(), error) {
	parent := os.Getppid()
	switch {
	case runtime.GOOS == "windows":
		return nil, nil, errors.New("--die-with-parent: not available on Windows; leave the option out")
	case parent == 0:
		return nil, nil, errors.New("--die-with-parent: the program that started cloche is in another pid namespace and cannot be watched; leave the option out")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(parentPoll)
		defer tick.Stop()
		for os.Getppid() == parent {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		cancel(errParentEnded)
		time.AfterFunc(lingering, func() { os.Exit(statusRefused) })
	}()
	return ctx, func() { cancel(nil) }, nil
}
