//go:build amd64 || arm64

package notify

import "github.com/cloche-dev/cloche/plan"

// record notes a refusal of the call. Who made it is looked up once: equal
// refusals are one entry.
func (c *call) record(op plan.Op, path string, v plan.Verdict) {
	c.note(plan.Denial{Op: op, Path: path, Verdict: v})
}

// note is record for a refusal that is about something else than a path.
func (c *call) note(d plan.Denial) {
	d.Pid = c.pid
	if c.b.denials.Wants(d) {
		d.Program, d.Argv = c.program(), CommandLine(c.pid)
	}
	c.b.denials.Add(d)
}
