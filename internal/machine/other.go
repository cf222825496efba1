//go:build !linux

package machine

import (
	"context"
	"os"
	"path/filepath"

	"github.com/cloche-dev/cloche/host"
)

// workingFolder resolves the symbolic links that $PWD may contain.
func workingFolder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// collectKernel sets the facts that the kernel reports without a probe.
func collectKernel(s *host.Snapshot) {
	s.Namespaces.MaxUser, s.Namespaces.UnprivilegedClone, s.Namespaces.AppArmorRestrict = -1, -1, -1
	s.Landlock.Reason = "Landlock is a part of Linux"
	s.Kernel, s.MemoryTotal = kernelFacts()
}

func detectCgroup(*host.Snapshot) {}

// ProbeUserNS reports that there are no user namespaces here.
func ProbeUserNS(_ context.Context, s *host.Snapshot) host.Probe { return classifyUserNS(factsOf(s)) }

// ProbeBwrap reports that there is no bubblewrap here.
func ProbeBwrap(_ context.Context, s *host.Snapshot) host.Bwrap {
	b := s.Bwrap
	b.Probe = classifyBwrap(factsOf(s))
	return b
}

// On other systems every probe answers at once and nothing is remembered.

func probeKeyFor(*host.Snapshot, string) (probeKey, bool) { return probeKey{}, false }

// slurp reads a small file of the system.
func slurp(name string) ([]byte, error) { return os.ReadFile(name) }

// Nested is false: no sandbox on this system shows its policy.
func Nested() bool { return false }
