//go:build !linux

package machine

import (
	"context"
	"os"
	"path/filepath"

	"github.com/cloche-dev/cloche/host"
)

// noNamespaces are the facts of a system that has no user namespaces.
var noNamespaces = host.Namespaces{MaxUser: -1, UnprivilegedClone: -1, AppArmorRestrict: -1}

// realWorkingFolder resolves the symbolic links that $PWD may hold.
func realWorkingFolder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

func detectLSMs(reader) []string { return nil }

func detectCgroup() host.Cgroup { return host.Cgroup{} }

func probeUserNS(_ context.Context, s *host.Snapshot) host.Probe {
	return classifyUserNS(facts{snapshot: s})
}

func probeBwrap(_ context.Context, s *host.Snapshot) host.Bwrap {
	b := s.Bwrap
	b.Probe = classifyBwrap(facts{snapshot: s})
	return b
}

// Elsewhere every probe answers at once and nothing is remembered.

func probeKeyFor(*host.Snapshot, string) (probeKey, bool) { return probeKey{}, false }

// slurp reads a small file of the system.
func slurp(name string) ([]byte, error) { return os.ReadFile(name) }

// Nested reports whether this process is inside of a sandbox of cloche that
// shows its policy; none does so here.
func Nested() bool { return false }

func coveredInProc() []string { return nil }
