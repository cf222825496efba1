//go:build amd64 || arm64

package notify

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// record notes a refusal of the call.
func (c *call) record(op plan.Op, path string, v plan.Verdict) {
	c.note(plan.Denial{Op: op, Path: path, Verdict: v})
}

// alsoRefused records the other name of a call that is refused for the first, if it is
// refused as well and takes another option to be allowed. Otherwise whoever adds the
// option for the first would be refused again. Where somebody is asked, each name is
// asked about in its turn.
func (c *call) alsoRefused(op plan.Op, first, other string) {
	if c.b.asks != nil {
		return
	}
	judge := c.b.config.Judge()
	told, also := plan.Denial{Op: op, Path: first, Verdict: judge.Path(first)}, plan.Denial{Op: op, Path: other, Verdict: judge.Path(other)}
	if told.Access != policy.Write && also.Access != policy.Write && !slices.Equal(told.Ask(), also.Ask()) {
		c.record(op, other, also.Verdict)
	}
}

// deniedByFilter records and refuses a call that the filter denies: it is handed over
// for the record alone.
func (c *call) deniedByFilter() bool {
	name, rule, ok := seccomp.Denied(c.nr, c.args)
	if ok {
		c.record(plan.OpCall, name, plan.Verdict{Rule: plan.RuleCalls, Reason: rule.Reason, Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: " + rule.Name}})
		c.fail(unix.Errno(rule.Errno))
	}
	return ok
}

// note is record for a refusal that is about something else than a path. Who made
// it is looked up once: equal refusals are one entry.
func (c *call) note(d plan.Denial) {
	if c.b.denials.Wants(d) {
		c.identify(&d)
		d.Outside = c.b.refusedOutside(&d)
	}
	c.b.denials.Add(d)
}

// identify fills in who made the call: the process, not the thread.
func (c *call) identify(d *plan.Denial) {
	d.Pid = c.status().tgid
	if d.Pid == 0 {
		d.Pid = c.pid
	}
	d.Program, d.Argv = c.program(), CommandLine(d.Pid)
}

// refusedOutside reports whether the system would refuse a change of a file without
// a sandbox, too: then it is not for a rule to allow. What a mask hides is looked at
// elsewhere, after the answer, so that its time tells nothing.
func (b *Broker) refusedOutside(d *plan.Denial) bool {
	switch d.Op {
	case plan.OpWrite, plan.OpCreate, plan.OpMkdir, plan.OpRename, plan.OpLink, plan.OpSymlink, plan.OpUnlink:
	default:
		return false
	}
	if d.Path == "" || d.Access == policy.Hidden || b.config.Masks == nil {
		return false
	}
	files := b.config.Masks().Covered(d.Path)
	return len(files) > 0 && !possible(d.Op, files[0])
}
