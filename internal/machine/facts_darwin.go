package machine

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
)

var homeVariables = []string{"HOME"}

func workingFolder() (string, error) { return realWorkingFolder() }

// collectKernel fills in what the kernel tells without a probe.
func collectKernel(s *host.Snapshot) {
	s.Namespaces = noNamespaces
	s.Landlock = host.Landlock{Reason: "Landlock is a part of Linux"}
	s.Kernel, _ = unix.Sysctl("kern.osrelease")
	if n, err := unix.SysctlUint64("hw.memsize"); err == nil {
		s.MemoryTotal = int64(n)
	}
}

// people are the homes of other people, whom macOS lists in no file.
func people(own string) []string {
	const folder = "/Users"
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return peopleHomes(folder, names, own)
}
