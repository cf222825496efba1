package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// errParentEnded is why a run with --die-with-parent is canceled.
var errParentEnded = errors.New("the program that started cloche has ended")

// lingering is how long a run may take to end after its parent. Then cloche exits, and
// with it all that it started.
const lingering = killDelay + 3*time.Second

// withParent returns a context that ends when the process that started this one does.
// What ended before it was looked at is not known: the process that adopted this one
// counts as its parent then.
func withParent(ctx context.Context) (context.Context, func(), error) {
	parent, stop, err := watchParent()
	if err != nil {
		return nil, nil, fmt.Errorf("--die-with-parent: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		if parent() {
			cancel(errParentEnded)
			time.AfterFunc(lingering, func() { os.Exit(statusRefused) })
		}
	}()
	return ctx, func() { stop(); cancel(nil) }, nil
}
