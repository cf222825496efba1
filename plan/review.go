package plan

import (
	"slices"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// A Review says that the command sees the host's writable directories and files copy-on-write: see
// [Plan.Reviews].
type Review struct {
	Name   string        `json:"name"`
	Origin policy.Origin `json:"origin"`
	// Layers are where the changes go. They are known when the review has begun.
	Layers []ReviewLayer `json:"-"`
}

// A ReviewLayer is where changes below Root, a path of the host, go. Upper and Work are directories for
// overlayfs. For a file, Upper is a copy of it, and Work is empty.
type ReviewLayer struct {
	Root, Upper, Work string
	// Refused, unless empty, is why Root cannot be shown copy-on-write here, and Fix what to do
	// about it.
	Refused, Fix string
}

// WithReview returns a copy of the plan whose review has these layers.
func (p *Plan) WithReview(layers []ReviewLayer) *Plan {
	own, review := *p, *p.Review
	review.Layers = layers
	own.Review = &review
	return &own
}

// Reviews reports whether what the command writes to a line is kept in the plan's review.
// Persisted directories are cloche's own, and writing to devices, pipes and sockets does not change
// them.
func (p *Plan) Reviews(e *Path) bool {
	return p.Review != nil && e.writableHost() && !e.Persisted()
}

// ReviewRoots returns the host paths whose changes go to the plan's review, sorted. None lies in
// another one.
func (p *Plan) ReviewRoots() []string {
	var all []string
	for i := range p.Paths {
		if e := &p.Paths[i]; p.Reviews(e) {
			all = append(all, e.Source)
		}
	}
	slices.Sort(all)
	var roots []string
	for _, r := range slices.Compact(all) {
		if !slices.ContainsFunc(roots, func(outer string) bool { return pathx.Within(outer, r) }) {
			roots = append(roots, r)
		}
	}
	return roots
}

// Layer returns the layer that has the changes of a host path, or nil.
func (r *Review) Layer(hostPath string) *ReviewLayer {
	if r == nil {
		return nil
	}
	i := slices.IndexFunc(r.Layers, func(l ReviewLayer) bool { return pathx.Within(l.Root, hostPath) })
	if i < 0 {
		return nil
	}
	return &r.Layers[i]
}

// MadeForReview returns the directories that a plan creates before the run and that are roots of
// its review.
func (p *Plan) MadeForReview() (dirs []string) {
	for i := range p.Paths {
		if e := &p.Paths[i]; p.Reviews(e) && e.Create && e.Kind == hostfs.Dir {
			dirs = append(dirs, e.Source)
		}
	}
	return dirs
}
