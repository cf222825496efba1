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

// SandboxVariable is an environment variable that names the backend to commands in a sandbox.
// It is for programs that want to adapt to the sandbox; cloche does not trust its value.
const SandboxVariable = resolve.SandboxVariable

// A notShown is the error that no policy can be shown. It matches os.ErrNotExist.
type notShown string

func (e notShown) Error() string { return string(e) }

func (notShown) Is(target error) bool { return target == os.ErrNotExist }

// InForce returns the text of the policy that this process runs under, if it runs in a sandbox
// of cloche that shows it. Otherwise errors.Is(err, os.ErrNotExist) is true. The backend
// landlock has no mounts to show the text with, and a policy that opens the host's /run leaves
// no place for it.
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

// covered are the rules of gaps of the backend landlock that an outer sandbox closes toward
// the machine.
var covered = []string{"hosts", "tmp", "paths.metadata", "network.interfaces", "processes"}

// coverGaps marks the gaps that an outer sandbox covers as optional. A sandbox in another
// sandbox cannot have namespaces. What it cannot deny for that reason is still denied by the
// outer one: the other processes that it sees are those of the outer sandbox, not of the
// machine. So a strict policy runs with these gaps, which are reported like others. Gaps about
// the policy's own paths are not changed.
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
