package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/native"
	"github.com/cloche-dev/cloche/internal/pathx"
)

// mountPoints returns the paths of all mounts that this process sees.
func mountPoints() ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cloche: list the mounts: %w", err)
	}
	var points []string
	for line := range strings.Lines(string(text)) {
		const pointField = 4
		if fields := strings.Fields(line); len(fields) > pointField {
			points = append(points, unescapeMount(fields[pointField]))
		}
	}
	return points, nil
}

// unescapeMount replaces the octal numbers by which the kernel writes blanks and backslashes.
func unescapeMount(text string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(text)
}

// cannotReview returns why a folder cannot be shown copy-on-write with its changes in the store, and
// the fix, as far as that is known without trying it.
func cannotReview(root, store string, mounts []string) (reason, fix string) {
	for _, m := range mounts {
		if m != root && pathx.Within(root, m) {
			return "another file system is mounted in it, at " + m + ", which overlayfs refuses",
				"name the folders that the command writes, without " + m + ", or unmount it"
		}
	}
	var fs unix.Statfs_t
	if unix.Statfs(existing(store), &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return "cloche's state folder " + filepath.Dir(store) + " is on overlayfs itself, as in a container, and cannot have the changes",
			"set XDG_STATE_HOME to a folder on another file system, such as a volume"
	}
	if other := othersEntry(root); other != "" {
		return other + " belongs to another user or group, and changing it through overlayfs fails (EOVERFLOW)",
			"give it to this user and its group (chown, chgrp), or work in a copy"
	}
	return "", ""
}

// existing is the path, or the closest folder above that exists.
func existing(path string) string {
	for {
		if _, err := os.Lstat(path); err == nil || path == "/" {
			return path
		}
		path = filepath.Dir(path)
	}
}

// othersEntry returns the folder, or the first entry directly in it, whose owner or group is not mapped in a user
// namespace of this user. Deeper ones are not looked for, because that would take time at each start.
func othersEntry(root string) string {
	if os.Geteuid() == 0 {
		return ""
	}
	unmapped := func(path string) bool {
		var st unix.Stat_t
		return unix.Lstat(path, &st) == nil && (int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid())
	}
	if unmapped(root) {
		return root
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if path := filepath.Join(root, e.Name()); unmapped(path) {
			return path
		}
	}
	return ""
}

// probeReview shows a folder copy-on-write, with its changes in the store, and says whether that works.
func probeReview(ctx context.Context, s *host.Snapshot, root string) host.Probe {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return host.Probe{Reason: err.Error()}
	}
	store, err := reviewStore(s.Dirs.State)
	if err != nil {
		return host.Probe{Reason: err.Error()}
	}
	mounts, err := mountPoints()
	if err != nil {
		return host.Probe{Reason: err.Error()}
	}
	if reason, fix := cannotReview(root, store, mounts); reason != "" {
		return host.Probe{Outcome: host.No, Reason: reason, Fix: fix}
	}
	dir, err := os.MkdirTemp(store, ".probe-")
	if err != nil {
		return host.Probe{Reason: err.Error()}
	}
	defer removeProbe(dir)
	for _, name := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return host.Probe{Reason: err.Error()}
		}
	}
	p := native.ProbeReview(ctx, s, root, dir)
	if p.Outcome == host.No {
		p.Reason = root + ": overlayfs cannot be mounted on it: " + p.Reason
		p.Fix = "have the folder, and cloche's state folder (XDG_STATE_HOME), on a local file system such as ext4, xfs or btrfs"
	}
	return p
}

// removeProbe removes the folder of a probe. The kernel leaves a folder that nobody may enter in it.
func removeProbe(dir string) {
	_ = os.Chmod(filepath.Join(dir, "work", "work"), 0o700)
	_ = os.RemoveAll(dir)
}
