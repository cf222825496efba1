package machine

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/host"
)

// ProbeAll makes every probe and collects the facts that take longer, for `cloche
// doctor`. It ignores caches.
func ProbeAll(ctx context.Context, s *host.Snapshot) {
	s.LSMs = detectLSMs(os.ReadFile)
	s.Container = detectContainer(os.ReadFile, s.Getenv, s.Kernel)
	detectCgroup(s)
	s.Namespaces.User = ProbeUserNS(ctx, s)
	s.Bwrap = ProbeBwrap(ctx, s)
}

// detectLSMs returns the active security modules. The file exists only where securityfs
// is mounted.
func detectLSMs(read reader) []string {
	text, err := read("/sys/kernel/security/lsm")
	if err != nil {
		return nil
	}
	return strings.FieldsFunc(strings.TrimSpace(string(text)), func(r rune) bool { return r == ',' })
}

// coveredInProc returns the paths below /proc that are covered by another mount, as
// container engines do with files about the whole machine. The mount of binfmt_misc is
// normal and does not count.
func coveredInProc() []string {
	text, err := slurp("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var list []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		at := fields[4]
		if strings.HasPrefix(at, "/proc/") && at != "/proc/sys/fs/binfmt_misc" && !slices.Contains(list, at) {
			list = append(list, at)
		}
	}
	return list
}

// readOSRelease returns the text of os-release, or "".
func readOSRelease(read reader) string {
	for _, f := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if text, err := read(f); err == nil {
			return string(text)
		}
	}
	return ""
}
