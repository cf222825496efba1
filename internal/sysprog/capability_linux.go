package sysprog

import (
	"sort"
	"sync"

	"golang.org/x/sys/unix"
)

// lastCapability is the highest capability of the kernel. The kernel has all lower ones, so a
// binary search finds it with six calls.
var lastCapability = sync.OnceValue(func() int {
	return sort.Search(highestCapability, func(c int) bool {
		_, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c+1), 0, 0, 0)
		return err != nil
	})
})
