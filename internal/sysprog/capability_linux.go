package sysprog

import (
	"sync"

	"golang.org/x/sys/unix"
)

// lastCapability is the highest capability that the kernel has.
var lastCapability = sync.OnceValue(func() int {
	last := 0
	for last < highestCapability {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(last+1), 0, 0, 0); err != nil {
			break
		}
		last++
	}
	return last
})
