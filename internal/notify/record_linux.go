//go:build amd64 || arm64

package notify

import "github.com/cloche-dev/cloche/plan"

// record notes a refusal of the call.
func (c *call) record(op plan.Op, path string, v plan.Verdict) {
	c.note(plan.Denial{Op: op, Path: path, Verdict: v})
}

// note is record for a refusal that is about something else than a path. Who made
// it is looked up once: equal refusals are one entry.
func (c *call) note(d plan.Denial) {
	if c.b.denials.Wants(d) {
		c.identify(&d)
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
