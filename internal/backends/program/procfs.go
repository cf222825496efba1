package program

import "github.com/cloche-dev/cloche/host"

// Files of /proc that are about the whole machine, in every namespace, and that no program
// needs: the names of all keys of the user, and counters from which the activity of other
// processes can be inferred. Those of root describe the kernel's memory; for other users,
// permissions protect them. /proc/kcore and /proc/kmsg are not listed, because the kernel
// denies them without capabilities.
var (
	hiddenInProc       = []string{"keys", "interrupts", "latency_stats"}
	hiddenInProcOfRoot = []string{"kpagecgroup", "kpagecount", "kpageflags", "pagetypeinfo", "sched_debug", "slabinfo", "timer_list", "timer_stats", "vmallocinfo"}
)

// HiddenInProc returns the names of files in /proc that a backend hides, as far as this kernel
// has them.
func HiddenInProc(s *host.Snapshot) []string {
	names := hiddenInProc
	if s.UID == 0 {
		names = append(names[:len(names):len(names)], hiddenInProcOfRoot...)
	}
	var there []string
	for _, name := range names {
		if _, err := s.FS.Lstat("/proc/" + name); err == nil { // it may be hidden here too, but not in a new /proc
			there = append(there, name)
		}
	}
	return there
}
