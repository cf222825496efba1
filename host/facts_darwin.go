package host

import "golang.org/x/sys/unix"

var homeVariables = []string{"HOME"}

func workingFolder() (string, error) { return realWorkingFolder() }

// collectKernel fills in what the kernel tells without a probe.
func (s *Snapshot) collectKernel() {
	s.Namespaces = noNamespaces
	s.Landlock = Landlock{Reason: "Landlock is a part of Linux"}
	s.Kernel, _ = unix.Sysctl("kern.osrelease")
	if n, err := unix.SysctlUint64("hw.memsize"); err == nil {
		s.MemoryTotal = int64(n)
	}
}
