//go:build amd64 || arm64

package notify

import (
	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// gitOps are the changes that git is asked about.
var gitOps = map[plan.Op]gitguard.Op{
	plan.OpCreate: gitguard.Create, plan.OpWrite: gitguard.Write, plan.OpMkdir: gitguard.Mkdir, plan.OpSymlink: gitguard.Symlink,
	plan.OpLink: gitguard.Link, plan.OpRename: gitguard.Rename, plan.OpUnlink: gitguard.Remove,
}

func gitPlace(p *place) gitguard.Place {
	return gitguard.Place{Dir: p.dir, Path: p.dirPath, Name: p.name}
}

// git asks whether git outside could run something because of a change, and
// makes the files that have to be made anew for it. It is false if the call is
// answered: the change is refused, or has been made in another way.
func (c *call) git(op plan.Op, at, from *place) bool {
	change := gitguard.Change{Op: gitOps[op], At: gitPlace(at), Root: c.b.rootAround(at.path())}
	if from != nil {
		change.From = gitPlace(from)
	} else if op == plan.OpLink {
		change.Op = gitguard.Create // of a file that had no name
	} else if c.node {
		change.Op = gitguard.Node
	}
	return c.settle(change, op, at, from)
}

func (c *call) gitRename(from, to *place, flags uint) bool {
	change := gitguard.Change{
		Op: gitguard.Rename, At: gitPlace(to), From: gitPlace(from), Root: c.b.rootAround(to.path()),
		Exchange: flags&unix.RENAME_EXCHANGE != 0, NoReplace: flags&unix.RENAME_NOREPLACE != 0,
	}
	return c.settle(change, plan.OpRename, to, from)
}

// settle does what the verdict about a change asks for.
func (c *call) settle(change gitguard.Change, op plan.Op, at, from *place) bool {
	if gitguard.Notable(change) && c.needsAlone() {
		return false
	}
	v := gitguard.Judge(change)
	if v.Action == gitguard.Refuse {
		reason := v.Reason
		if v.Fix != "" {
			reason += "; " + v.Fix
		}
		c.refuse(op, at.path(), plan.Verdict{Access: policy.Read, Rule: v.Rule, Reason: reason, At: at.path(), Origin: policy.Origin{Source: "git directories are guarded"}})
		return false
	}
	if err := c.as(v.Put); err != nil {
		c.failWith(err)
		return false
	}
	if v.Action == gitguard.Allow {
		return true
	}
	c.installed(change.Op, from)
	return false
}

// installed answers a call whose file the broker has written itself.
func (c *call) installed(op gitguard.Op, from *place) {
	switch op {
	case gitguard.Rename:
		c.finish(c.as(func() error { return unix.Unlinkat(from.dir, from.name, 0) }))
	case gitguard.Create:
		c.giveAway()
	default:
		c.succeed(0)
	}
}

// giveAway gives the process a file to write that nobody reads.
func (c *call) giveAway() {
	fd, err := unix.MemfdCreate("discarded", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // Linux before 6.3
		fd, err = unix.MemfdCreate("discarded", unix.MFD_CLOEXEC)
	}
	if err != nil {
		c.failWith(err)
		return
	}
	c.give(fd, true)
}

// rootAround is the guarded folder around a path.
func (b *Broker) rootAround(path string) string {
	best := ""
	for _, r := range b.config.Roots {
		if len(r) > len(best) && pathx.Within(r, path) {
			best = r
		}
	}
	return best
}
