package machine

import (
	"context"
	"os"
	"runtime"

	"github.com/cloche-dev/cloche/host"
)

// ProbeAll finds out everything that takes a probe or more than a moment, for
// `cloche doctor`. It asks the machine anew, whatever a cache says.
func ProbeAll(ctx context.Context, s *host.Snapshot) {
	s.LSMs = detectLSMs(os.ReadFile)
	s.Container = detectContainer(os.ReadFile, s.Getenv, s.Kernel)
	s.Cgroup = detectCgroup()
	s.Namespaces.User = probeUserNS(ctx, s)
	s.Bwrap = probeBwrap(ctx, s)
}

// ProbeUserNS really makes a user namespace, uses a capability in it, and
// changes a mount in a mount namespace of its own. It ends with ctx and leaves
// nothing behind.
func ProbeUserNS(ctx context.Context) host.Probe {
	return probeUserNS(ctx, here(host.Bwrap{}))
}

// ProbeBwrap really makes a sandbox with the bwrap at that path, of the same
// parts as real ones: every kind of namespace, the host's root read-only, its
// own /proc, /dev and a tmpfs. It ends with ctx and leaves nothing behind.
//
// The outcome is Unknown where the trial could not be finished; such an answer
// must not be remembered.
func ProbeBwrap(ctx context.Context, path string) host.Bwrap {
	return probeBwrap(ctx, here(host.Bwrap{Path: path}))
}

// here is a snapshot with just what the probes look at.
func here(b host.Bwrap) *host.Snapshot {
	s := &host.Snapshot{OS: runtime.GOOS, Arch: runtime.GOARCH, UID: os.Getuid(), GID: os.Getgid(), Environ: os.Environ(), Bwrap: b}
	collectKernel(s)
	s.Container = detectContainer(os.ReadFile, s.Getenv, s.Kernel)
	return s
}

// readOSRelease returns the system's own description, or nothing.
func readOSRelease(read reader) string {
	for _, f := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if text, err := read(f); err == nil {
			return string(text)
		}
	}
	return ""
}
