package native

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// ReviewStep is the label of the steps that show the root of a review copy-on-write. If one of
// them fails, the directory cannot be shown so on this machine.
func ReviewStep(root string) string { return "show " + root + " copy-on-write" }

// aboveReview is the distance from the first free descriptor to the ones with which an overlay is
// mounted. Fewer are opened before.
const aboveReview = 64

// besideReview returns the lines that show the host's own file although there is a review: granted sockets. A
// socket that is seen through an overlay has no server.
func (c *compiler) besideReview(lines []*plan.Path) (sockets []*plan.Path) {
	for _, e := range lines {
		if c.plan.Review != nil && e.Kind == hostfs.Socket {
			sockets = append(sockets, e)
		}
	}
	return sockets
}

// review mounts an overlay over each root of the plan's review, at its own path. So everything
// that is cloned from that path afterwards, for whichever line, is a part of the overlay: the
// directory itself, pins, protected files, binds. What is mounted later, such as a mask, lies
// above it.
//
// The kernel is given /proc/self/fd/N for each layer. /proc/self/mountinfo shows this text inside, and
// so not where the store is. All layers are opened before the first overlay is mounted, because the store may
// lie in a root.
func (c *compiler) review() error {
	if c.plan.Review == nil {
		return nil
	}
	for _, root := range c.plan.ReviewRoots() {
		if c.plan.Review.Layer(root) == nil {
			return fmt.Errorf("the review has no layer for %s", root)
		}
	}
	const perLayer = 3
	var opened [][perLayer]sysprog.Arg
	var layers []plan.ReviewLayer
	for _, l := range c.plan.Review.Layers {
		b := c.by(c.plan.Review.Origin, ReviewStep(l.Root))
		switch {
		case l.Refused != "":
			c.launch.Gaps = append(c.launch.Gaps, backend.Gap{Rule: "review", Subject: l.Root, Reason: l.Refused, Fix: l.Fix, Origin: c.plan.Review.Origin})
		case l.Work == "":
			c.copies[l.Root] = open(b, sysprog.Cwd(), l.Upper)
		default:
			layers = append(layers, l)
			opened = append(opened, [perLayer]sysprog.Arg{open(b, sysprog.Cwd(), l.Root), open(b, sysprog.Cwd(), l.Upper), open(b, sysprog.Cwd(), l.Work)})
		}
	}
	first := c.fds.Free + aboveReview + perLayer*len(c.plan.Review.Layers)
	for i, l := range layers {
		b := c.by(c.plan.Review.Origin, ReviewStep(l.Root))
		options := []string{"source=cloche", "userxattr"}
		for j, name := range [perLayer]string{"lowerdir", "upperdir", "workdir"} {
			b.Dup3(opened[i][j], first+j)
			options = append(options, fmt.Sprintf("%s=/proc/self/fd/%d", name, first+j))
		}
		mount := b.NewMount("overlay", ofHost, options...)
		b.MoveMount(mount, "", opened[i][0], "", sysprog.MoveMountFromEmptyPath|sysprog.MoveMountToEmptyPath)
		b.Close(mount)
		for j := range perLayer {
			b.Close(opened[i][j])
			b.Close(sysprog.FD(first + j))
		}
	}
	return nil
}

// ProbeReview shows a directory copy-on-write, with its changes in dir, which is empty.
func ProbeReview(ctx context.Context, s *host.Snapshot, root, dir string) host.Probe {
	p := program.ProbePlan()
	p.Paths = append(p.Paths, plan.Path{Path: root, Source: root, Kind: hostfs.Dir, Access: policy.Write})
	p.Review = &plan.Review{Layers: []plan.ReviewLayer{{Root: root, Upper: filepath.Join(dir, "upper"), Work: filepath.Join(dir, "work")}}}
	c := newCompiler(p, s)
	if err := c.compile(); err != nil {
		return host.Probe{Reason: err.Error()}
	}
	switch ok, err := c.trial(ctx); {
	case err != nil:
		return host.Probe{Outcome: host.No, Reason: err.Error()}
	case !ok:
		return host.Probe{Reason: "the probe ended in an unexpected way"}
	}
	return host.Probe{Outcome: host.Yes}
}
