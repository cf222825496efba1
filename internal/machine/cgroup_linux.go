package machine

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
)

const cgroupRoot = "/sys/fs/cgroup"

// detectCgroup finds the control groups at their usual place.
func detectCgroup() host.Cgroup {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return host.Cgroup{}
	}
	entries := parseCgroups(string(text))
	switch filesystem(cgroupRoot) {
	case unix.CGROUP2_SUPER_MAGIC:
		return unifiedCgroup(entries)
	case unix.TMPFS_MAGIC:
		return legacyCgroup(entries)
	default:
		return host.Cgroup{}
	}
}

func filesystem(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0
	}
	return int64(st.Type)
}

// unifiedCgroup describes v2. The group is delegated if the three files named
// in cgroups(7) as its delegates' are writable.
func unifiedCgroup(entries []cgroupEntry) host.Cgroup {
	c := host.Cgroup{Version: "v2"}
	i := slices.IndexFunc(entries, cgroupEntry.unified)
	if i < 0 {
		return c
	}
	dir := groupFolder(cgroupRoot, entries[i].group)
	if dir == "" {
		return c
	}
	if text, err := os.ReadFile(dir + "/cgroup.controllers"); err == nil {
		c.Controllers = strings.Fields(string(text))
		slices.Sort(c.Controllers)
	}
	c.Delegated = writable(dir) && writable(dir+"/cgroup.procs") && writable(dir+"/cgroup.subtree_control")
	return c
}

// legacyCgroup describes v1, or v1 with v2 beside it. Both the memory and the
// pids group have to be writable to be of use.
func legacyCgroup(entries []cgroupEntry) host.Cgroup {
	c := host.Cgroup{Version: "v1", Controllers: v1Controllers(entries)}
	if filesystem(cgroupRoot+"/unified") == unix.CGROUP2_SUPER_MAGIC {
		c.Version = "hybrid"
	}
	c.Delegated = legacyWritable(entries, "memory") && legacyWritable(entries, "pids")
	return c
}

func legacyWritable(entries []cgroupEntry, controller string) bool {
	for _, e := range entries {
		if slices.Contains(e.controllers, controller) {
			dir := groupFolder(cgroupRoot+"/"+controller, e.group)
			return dir != "" && writable(dir)
		}
	}
	return false
}

func writable(file string) bool { return unix.Access(file, unix.W_OK) == nil }
