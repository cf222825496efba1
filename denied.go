package cloche

import (
	"os"
	"time"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/plan"
)

// DeniedText says in a few lines what was refused to the command, for an agent
// to act on: what it was, by which rule, and the option of `cloche run` that allows
// it. It is empty if there is nothing to say. What programs commonly try and do
// without is left out, unless the command failed.
func (r *Result) DeniedText() string {
	t := r.telling()
	return t.Text()
}

// DeniedLines is for people what DeniedText is for an agent: a line for each of the
// most frequent refusals, with those of one folder or host put together. There are
// none of a command that went well. where names, in the last
// line, what has all of them.
func (r *Result) DeniedLines(where string) []string {
	t := r.telling()
	t.Where = where
	return t.Lines()
}

// DeniedFirst is for people who wait for a command that goes on: a line for the first
// refusal of each kind (reads, changes, network, sockets) that happened before a
// time. Where nothing runs it is empty.
func (c *Cmd) DeniedFirst(before time.Time) []string {
	if c.process == nil {
		return nil
	}
	list := append(c.process.Denied(), c.netRecord.deniedSoFar()...)
	placeDenied(list, c.plan)
	home, _ := os.UserHomeDir()
	return denials.First(list, home, before)
}

func (r *Result) telling() denials.Telling {
	home, _ := os.UserHomeDir()
	return denials.Telling{List: r.Denied, More: r.DeniedMore, Home: home, Success: r.Success()}
}

// redactDenied takes what looks like a secret out of command lines, as the log
// does.
func redactDenied(list []Denial) {
	for i := range list {
		list[i].Argv = audit.Redact(list[i].Argv)
	}
}

// placeDenied tells refusals which plan they are by: options name the host's paths.
func placeDenied(list []Denial, p *plan.Plan) {
	for i := range list {
		list[i].Of(p)
	}
}
