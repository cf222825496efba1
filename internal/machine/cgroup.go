package machine

import (
	"path"
	"slices"
	"strings"
)

// A cgroupEntry is one line of /proc/self/cgroup: a hierarchy's controllers
// (none for v2) and the caller's group in it.
type cgroupEntry struct {
	controllers []string
	group       string
}

func (e cgroupEntry) unified() bool { return len(e.controllers) == 0 }

// parseCgroups reads the text of /proc/self/cgroup. Named v1 hierarchies
// ("name=systemd") control nothing and are left out.
func parseCgroups(text string) []cgroupEntry {
	var out []cgroupEntry
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || !path.IsAbs(f[2]) {
			continue
		}
		e := cgroupEntry{group: f[2]}
		if f[1] != "" {
			e.controllers = strings.Split(f[1], ",")
		}
		if e.unified() && f[0] != "0" || strings.HasPrefix(f[1], "name=") {
			continue
		}
		out = append(out, e)
	}
	return out
}

// groupFolder returns the folder of a group below its hierarchy's mount point,
// or the empty string for a group outside of the cgroup namespace, which the
// kernel shows with a leading "/..".
func groupFolder(mount, group string) string {
	if group == "/.." || strings.HasPrefix(group, "/../") {
		return ""
	}
	return path.Join(mount, group)
}

// v1Controllers returns the sorted controllers of all v1 hierarchies.
func v1Controllers(entries []cgroupEntry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.controllers...)
	}
	slices.Sort(out)
	return out
}
