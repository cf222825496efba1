package program

import "github.com/cloche-dev/cloche/host"

// Files of /proc that are the whole machine's, in every namespace, and that no program needs
// to run: the names of all keys of the user, and counts by which others' work can be
// guessed at. Those of root describe the kernel's memory; elsewhere their permissions
// keep them. What the kernel refuses without capabilities, /proc/kcore and /proc/kmsg, is
// not among them.
var (
	hiddenInProc       = []string{"keys", "interrupts", "latency_stats"}
	hiddenInProcOfRoot = []string{"kpagecgroup", "kpagecount", "kpageflags", "pagetypeinfo", "sched_debug", "slabinfo", "timer_list", "timer_stats", "vmallocinfo"}
)

// HiddenInProc are the names of files in /proc that a backend covers, as far as this
// kernel has them.
func HiddenInProc(s *host.Snapshot) []string {
	names := hiddenInProc
	if s.UID == 0 {
		names = append(names[:len(names):len(names)], hiddenInProcOfRoot...)
	}
	var there []string
	for _, name := range names {
		if _, err := s.FS.Lstat("/proc/" + name); err == nil { // covered here too, maybe, and not in a new /proc
			there = append(there, name)
		}
	}
	return there
}
