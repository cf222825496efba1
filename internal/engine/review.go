package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/backends/native"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/review"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
)

// reviews are the review of the engine's commands. A review is held, and so locked, while a sandbox
// shows it: the kernel must not get the same layers for two mounts.
type reviews struct {
	mu   sync.Mutex
	held *heldReview
	// refused are the roots that the kernel refused to show copy-on-write, and its errors.
	refused map[string]error
}

// errReviewRefused: a warm sandbox could not be made because the kernel refused to show a root copy-on-write. The next one has a gap
// for the root.
var errReviewRefused = errors.New("a root of the review cannot be shown copy-on-write")

// A heldReview is an open review. A nil one is none.
type heldReview struct {
	review *review.Review
	close  func()
	// done, unless nil, is closed when the sandbox has ended that shows the review.
	done <-chan struct{}
}

// release closes the review. The sandbox that shows it has ended, or was not made.
func (h *heldReview) release() {
	if h != nil {
		h.close()
	}
}

// endWith releases the review when a sandbox has ended.
func (h *heldReview) endWith(done <-chan struct{}) {
	if h == nil {
		return
	}
	h.done = done
	go func() {
		<-done
		h.close()
	}()
}

// releaseEnded releases the review of a sandbox that has ended. It does not wait for endWith.
func (r *reviews) releaseEnded() {
	r.mu.Lock()
	h := r.held
	r.mu.Unlock()
	if h == nil || h.done == nil {
		return
	}
	select {
	case <-h.done:
		h.close()
	default:
	}
}

// reviewStore returns the folder of all reviews, with links resolved.
func reviewStore(state string) (string, error) {
	dir := filepath.Join(state, "review")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// reviewsOn reports whether a backend shows the roots of a plan's review copy-on-write. The others report
// a gap.
func reviewsOn(p *plan.Plan, b backend.Backend) bool {
	return p.Review != nil && b != nil && b.Name() == native.Name
}

// beginReview begins or continues the review of a plan, and returns the plan with its layers. If
// a root cannot be shown copy-on-write, its layer says why.
func (e *Engine) beginReview(p *plan.Plan, b backend.Backend, state string) (*plan.Plan, *heldReview, error) {
	if !reviewsOn(p, b) {
		return p, nil, nil
	}
	layers, err := e.reviewLayers(p, state, true)
	if err != nil {
		return nil, nil, err
	}
	var roots []string
	for _, l := range layers {
		if l.Refused == "" {
			roots = append(roots, l.Root)
		}
	}
	if len(roots) == 0 {
		return p.WithReview(layers), nil, nil
	}
	for _, dir := range p.MadeForReview() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, nil, fmt.Errorf("cloche: make a writable folder: %w", err)
		}
	}
	store, err := reviewStore(state)
	if err != nil {
		return nil, nil, fmt.Errorf("cloche: the store of reviews: %w", err)
	}
	r, err := e.takeReview(review.Open(store), p, roots)
	switch {
	case errors.Is(err, review.ErrInUse):
		return nil, nil, fmt.Errorf("cloche: the review %s: %w; wait for it, or use another review: --review=NAME", p.Review.Name, err)
	case err != nil:
		return nil, nil, fmt.Errorf("cloche: the review %s: %w", p.Review.Name, err)
	}
	held := &heldReview{review: r}
	done := make(chan struct{})
	held.close = sync.OnceFunc(func() {
		close(done)
		_ = r.Keep()  // without it, conflicts cannot be merged
		_ = r.Close() // the lock ends with the descriptor
	})
	go keepOriginals(r, done)
	e.reviews.mu.Lock()
	e.reviews.held = held
	e.reviews.mu.Unlock()
	return p.WithReview(withReal(layers, r.Layers())), held, nil
}

// endsSoon is how long a review is waited for that is in use.
const endsSoon = 2 * time.Second

// takeReview begins or continues the review of a plan. It waits a moment for one that is in use: a sandbox that was dropped
// takes a while to end, and a process that was forked while the lock was open has it until it executes its program.
func (e *Engine) takeReview(s review.Store, p *plan.Plan, roots []string) (*review.Review, error) {
	const pause = 20 * time.Millisecond
	for end := time.Now().Add(endsSoon); ; time.Sleep(pause) {
		e.reviews.releaseEnded()
		r, err := s.Begin(p.Workspace, p.Review.Name, roots)
		if !errors.Is(err, review.ErrInUse) || time.Now().After(end) {
			return r, err
		}
	}
}

// keepEvery is how often a running command's changes are looked for.
const keepEvery = 5 * time.Second

// keepOriginals keeps copies of the host's files that commands change while they run, so that a change of the host during
// a long command can be merged. It takes at most a fiftieth of the time.
func keepOriginals(r *review.Review, done <-chan struct{}) {
	pause := keepEvery
	for {
		select {
		case <-done:
			return
		case <-time.After(pause):
		}
		began := time.Now()
		_ = r.Keep()
		pause = max(keepEvery, 50*time.Since(began))
	}
}

// withReal replaces the layers that are not refused by those of the review that have their roots. An
// earlier command of the review may have had a root around one of them.
func withReal(planned []plan.ReviewLayer, real []review.Layer) (layers []plan.ReviewLayer) {
	begun := &plan.Review{}
	for _, l := range real {
		begun.Layers = append(begun.Layers, plan.ReviewLayer{Root: l.Root, Upper: l.Upper, Work: l.Work})
	}
	used := map[string]bool{}
	for _, l := range planned {
		if l.Refused == "" {
			l = *begun.Layer(l.Root)
		}
		if !used[l.Root] {
			layers = append(layers, l)
		}
		used[l.Root] = true
	}
	return layers
}

// reviewLayers returns the layers that the review of a plan would have if it began now. Nothing is made. live: the
// plan is for this machine.
func (e *Engine) reviewLayers(p *plan.Plan, state string, live bool) ([]plan.ReviewLayer, error) {
	mounts, err := mountPoints()
	if err != nil {
		return nil, err
	}
	store := filepath.Join(state, "review")
	kinds := map[string]hostfs.Kind{}
	for i := range p.Paths {
		if e := &p.Paths[i]; p.Reviews(e) {
			kinds[e.Source] = e.Kind
		}
	}
	var layers []plan.ReviewLayer
	for i, root := range p.ReviewRoots() {
		dir := filepath.Join(store, p.Review.Name, "layers", strconv.Itoa(i))
		l := plan.ReviewLayer{Root: root, Upper: filepath.Join(dir, "upper")}
		if kinds[root] == hostfs.Dir {
			l.Work = filepath.Join(dir, "work")
			if live {
				l.Refused, l.Fix = e.refusesReview(root, store, mounts)
			}
		}
		layers = append(layers, l)
	}
	return layers, nil
}

// refusesReview returns why a folder cannot be shown copy-on-write, and the fix, or nothing.
func (e *Engine) refusesReview(root, store string, mounts []string) (reason, fix string) {
	e.reviews.mu.Lock()
	err := e.reviews.refused[root]
	e.reviews.mu.Unlock()
	if err != nil {
		return kernelRefuses(err)
	}
	return cannotReview(root, store, mounts)
}

// kernelRefuses says what an error about an overlay means.
func kernelRefuses(err error) (reason, fix string) {
	reason = "overlayfs cannot be mounted on it: " + err.Error()
	switch {
	case errors.Is(err, syscall.ENODEV):
		return reason, "load the kernel module overlay"
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return reason, "let users mount overlayfs in user namespaces (some security modules forbid it); cloche doctor tries it"
	}
	return reason, "have the folder, and cloche's state folder (XDG_STATE_HOME), on a local file system such as ext4, xfs or btrfs"
}

// noteRefused reports whether a command did not start because the kernel refused to show a root of
// its review copy-on-write. The next plan has a gap for that root.
func (e *Engine) noteRefused(err error, p *plan.Plan) bool {
	var step *sysprog.StepError
	if !errors.As(err, &step) || p == nil || p.Review == nil {
		return false
	}
	e.reviews.mu.Lock()
	defer e.reviews.mu.Unlock()
	for _, l := range p.Review.Layers {
		if step.Step.Label == native.ReviewStep(l.Root) && e.reviews.refused[l.Root] == nil {
			if e.reviews.refused == nil {
				e.reviews.refused = map[string]error{}
			}
			e.reviews.refused[l.Root] = step
			return true
		}
	}
	return false
}

// changedInReview adds to the error about a path that another one is there, or none, that an earlier command of the
// review can be the reason.
func (e *Engine) changedInReview(err error) error {
	var changed *supervise.ChangedError
	name := e.Effective().Review
	if name == "" || !errors.As(err, &changed) {
		return err
	}
	return fmt.Errorf("%w; an earlier command of the review %s may have removed or replaced it: see cloche review, or use another review with --review=NAME", err, name)
}

// endReview releases the review of a command that has ended, or was not started.
func (p *Prepared) endReview() {
	p.review.release()
	p.review = nil
}
