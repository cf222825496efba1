package machine

import (
	"bytes"
	"strings"
)

// A reader reads a whole file of the host; tests supply their own.
type reader func(path string) ([]byte, error)

// has reports whether the file can be read.
func (r reader) has(file string) bool {
	_, err := r(file)
	return err == nil
}

// detectContainer names the container or subsystem around the caller, or
// returns the empty string. It only looks at what runtimes leave behind for
// that purpose; the answer chooses the words of a fix and decides nothing.
func detectContainer(read reader, getenv func(string) (string, bool), kernel string) string {
	if v, _ := getenv("container"); v != "" {
		return v // the interface of systemd; podman, lxc and nspawn set it
	}
	if v := markedContainer(read); v != "" {
		return v
	}
	if v := initContainer(read); v != "" {
		return v
	}
	if v, _ := getenv("KUBERNETES_SERVICE_HOST"); v != "" {
		return "kubernetes"
	}
	if k := strings.ToLower(kernel); strings.Contains(k, "microsoft") || strings.Contains(k, "-wsl") {
		return "wsl"
	}
	return ""
}

// markedContainer goes by marker files.
func markedContainer(read reader) string {
	switch {
	case read.has("/.flatpak-info"):
		return "flatpak"
	case read.has("/run/.containerenv"):
		return "podman"
	}
	if text, err := read("/run/systemd/container"); err == nil && len(bytes.TrimSpace(text)) > 0 {
		return string(bytes.TrimSpace(text))
	}
	if read.has("/.dockerenv") {
		return "docker"
	}
	return ""
}

// cgroupHints are parts of the control group's name of a container's first
// process, where the group namespace is not the container's own.
var cgroupHints = []struct{ part, name string }{
	{"/kubepods", "kubernetes"},
	{"/docker", "docker"},
	{"/libpod", "podman"},
	{"/lxc", "lxc"},
	{"/garden", "garden"},
	{"/containerd", "containerd"},
	{"/machine.slice/machine-", "systemd-nspawn"},
}

// initContainer goes by the first process of the pid namespace. Its
// environment can be read by root only.
func initContainer(read reader) string {
	if text, err := read("/proc/1/environ"); err == nil {
		for kv := range bytes.SplitSeq(text, []byte{0}) {
			if v, ok := bytes.CutPrefix(kv, []byte("container=")); ok && len(v) > 0 {
				return string(v)
			}
		}
	}
	text, err := read("/proc/1/cgroup")
	if err != nil {
		return ""
	}
	for _, h := range cgroupHints {
		if bytes.Contains(text, []byte(h.part)) {
			return h.name
		}
	}
	return ""
}
