package notify

import (
	"context"
	"time"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Config says what a broker holds.
type Config struct {
	// Judge knows the rules. It is made when it is first needed: most commands
	// change nothing.
	Judge func() *plan.Judge
	// Roots are the guarded folders, as seen inside: Landlock refuses every change
	// in them to the sandboxed processes.
	Roots []string
	// Reads: the filter hands over opens for reading too, because rules hide by
	// patterns.
	Reads bool
	// Plan is what Judge is of. It is asked about sockets and the network, and may
	// be nil where the filter hands over no connect.
	Plan *plan.Plan
	// Asks, unless nil, is who is asked about what a rule refuses.
	Asks *Asks
	// Masks are the lines that hide, nil if attempts at what they hide need not be
	// on record. They are made when they are first needed.
	Masks func() *plan.Masks
	// Lock is the file that brokers lock while they judge and make a change; empty is
	// none, for a broker that is alone.
	Lock string
	// Records says which opens for reading the filter hands over to be looked at.
	Records policy.Recording
}

// Asks is how somebody outside is asked about a call that a rule refuses, while
// the process that made it waits.
type Asks struct {
	// Plan is what Config.Judge judges by, and where the host has what it keeps
	// from the command.
	Plan *plan.Plan
	// Ask waits for the answer, or for the end of ctx: then nobody wants it any
	// more. It is called from many goroutines. What it returns is a line of the plan
	// from then on.
	Ask func(ctx context.Context, d plan.Denial) (Given, bool)
}

// Given is a line that somebody gave while the command runs.
type Given struct {
	plan.Path
	// Until is when it ends; zero is with the run.
	Until time.Time
}
