package machine

import "golang.org/x/sys/unix"

// kernelFacts returns the kernel's release and the machine's memory.
func kernelFacts() (release string, memory int64) {
	release, _ = unix.Sysctl("kern.osrelease")
	if n, err := unix.SysctlUint64("hw.memsize"); err == nil {
		memory = int64(n)
	}
	return release, memory
}
