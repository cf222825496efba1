package engine

import (
	"os"
	"slices"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/wellknown"
)

// SandboxVariable names the backend to the commands in a sandbox. It is there for
// programs that want to behave accordingly; nothing is trusted for it.
const SandboxVariable = resolve.SandboxVariable

// A notShown says why there is no policy in force to be read.
type notShown string

func (e notShown) Error() string { return string(e) }

func (notShown) Is(target error) bool { return target == os.ErrNotExist }

// InForce returns the policy that this process is held to, as text, if it runs
// inside of a sandbox of cloche that shows it. The error is os.ErrNotExist, by
// errors.Is, if it does not: the backend landlock has no mounts to show it with, and a policy
// that opens the host's /run leaves no place for it.
func InForce() (string, error) {
	if !machine.Nested() {
		if name := os.Getenv(SandboxVariable); name != "" {
			return "", notShown("the sandbox around this process (" + name + ") does not show its policy; outside of it, cloche explain prints it")
		}
		return "", notShown("this is not inside a sandbox of cloche, so no policy is in force; cloche explain prints the policy that a command would have")
	}
	text, err := os.ReadFile(wellknown.PolicyFile)
	return string(text), err
}

// covered are the gaps of the backend landlock that another sandbox around it
// closes towards the machine.
var covered = []string{"hosts", "tmp", "paths.metadata", "network.interfaces", "processes"}

// coverGaps marks the gaps that a sandbox around this one covers. A sandbox in
// another one cannot have namespaces, and what it cannot do without is still
// denied to everything in here: other processes are those of the outer sandbox, not
// of the machine. So a strict policy runs with these gaps, which are reported as
// any others. Gaps that are about the policy's own paths stay as they are.
func coverGaps(l *backend.Launch, snap *host.Snapshot) {
	if len(l.Gaps) == 0 || !snap.Live() || !machine.Nested() {
		return
	}
	for i := range l.Gaps {
		if g := &l.Gaps[i]; slices.Contains(covered, g.Rule) && !g.Optional {
			g.Optional = true
			g.Reason += "; the sandbox around this one keeps it from the machine"
			g.Fix = ""
		}
	}
}
