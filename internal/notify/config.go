package notify

import (
	"bytes"
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Config has the rules that a broker enforces.
type Config struct {
	// Judge returns the rules. It is called when they are first needed: most commands change
	// nothing.
	Judge func() *judge.Files
	// Roots are the guarded directories, as seen inside: Landlock denies every change in them to
	// the sandboxed processes.
	Roots []string
	// Reads: the filter hands over opens for reading too, because rules hide by patterns.
	Reads bool
	// Plan is the plan that Judge is of. It is asked about sockets and the network, and may be
	// nil where the filter hands over no connect.
	Plan *plan.Plan
	// Asks, unless nil, asks somebody about what a rule denies.
	Asks *Asks
	// Masks returns the lines that hide. It is nil if attempts at hidden files are not
	// recorded, and is called when the lines are first needed.
	Masks func() *judge.Masks
	// Lock is the file that brokers lock while they judge and make a change. Empty means none,
	// for a broker that is alone.
	Lock string
	// Records says which opens for reading the filter hands over to be recorded.
	Records policy.Recording
}

// handsOverExec reports whether the filter hands over the execution of programs.
func (c *Config) handsOverExec() bool {
	return c.Reads || c.Masks != nil && c.Records != policy.RecordChanges
}

// Asks is how somebody outside is asked about a denied call, while the process that made it
// waits.
type Asks struct {
	// Plan is what Config.Judge judges by, and where the host has what it denies the command.
	Plan *plan.Plan
	// Ask waits for the answer, or for the end of ctx, when nobody needs it any more. It is
	// called from many goroutines. What it returns is a line of the plan from then on.
	Ask func(ctx context.Context, d plan.Denial) (Given, bool)
}

// Given is a line that somebody granted while the command runs.
type Given struct {
	plan.Path
	// Until is when it expires; zero is at the end of the run.
	Until time.Time
}

// How much of a command line is kept.
const (
	maxArguments = 32
	maxArgvBytes = 4096
)

// CommandLine returns the first arguments of a process, by its number on the host, or nil if
// it is gone. They may contain secrets.
func CommandLine(pid int) []string {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxArgvBytes))
	if err != nil || len(raw) == 0 {
		return nil
	}
	argv := strings.Split(string(bytes.TrimSuffix(raw, []byte{0})), "\x00")
	return argv[:min(len(argv), maxArguments)]
}
