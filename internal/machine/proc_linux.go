package machine

import (
	"slices"
	"strings"
)

// coveredInProc returns the paths below /proc that another file system covers, as container
// engines do with files about the whole machine. A mount for the formats of programs belongs
// there.
func coveredInProc() []string {
	text, err := slurp("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	return coveredBy(string(text))
}

// coveredBy reads them from the text of mountinfo.
func coveredBy(mountinfo string) []string {
	var list []string
	for line := range strings.Lines(mountinfo) {
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
