package machine

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
)

// bwrapOptions are the options of bwrap that cloche uses, without their dashes. Every
// sandbox needs those of the first list; bubblewrap 0.4.0 has all of them.
var (
	neededOptions = []string{
		"args", "as-pid-1", "die-with-parent", "json-status-fd", "new-session", "ro-bind-data",
		"seccomp", "unshare-cgroup", "unshare-user",
	}
	welcomeOptions = []string{
		"add-seccomp-fd", "assert-userns-disabled", "bind-fd", "chmod", "clearenv", "disable-userns",
		"overlay", "perms", "ro-bind-fd", "size", "tmp-overlay",
	}
)

// parseBwrapVersion reads the output of bwrap --version: "bubblewrap 0.8.0".
func parseBwrapVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) != 2 || f[0] != "bubblewrap" {
		return ""
	}
	return f[1]
}

// parseBwrapOptions reads the output of bwrap --help. It returns the options in it that
// cloche uses, and the needed ones that are missing.
func parseBwrapOptions(help string) (has, lacks []string) {
	known := map[string]bool{}
	for line := range strings.Lines(help) {
		if f := strings.Fields(line); len(f) > 0 && strings.HasPrefix(f[0], "--") {
			known[f[0][2:]] = true
		}
	}
	for _, o := range neededOptions {
		if known[o] {
			has = append(has, o)
		} else {
			lacks = append(lacks, o)
		}
	}
	for _, o := range welcomeOptions {
		if known[o] {
			has = append(has, o)
		}
	}
	return has, lacks
}

// bwrapExitCode reads what bwrap wrote to its status descriptor, one JSON object per
// line, and returns the exit code in it. bwrap reports one only if the sandbox was
// complete and the command was really executed in it. This, and no error text,
// distinguishes a failed set-up from a failed command.
func bwrapExitCode(status io.Reader) (code int, reported bool) {
	sc := bufio.NewScanner(status)
	for sc.Scan() {
		var event struct {
			ExitCode *int `json:"exit-code"`
		}
		if json.Unmarshal(bytes.TrimSpace(sc.Bytes()), &event) == nil && event.ExitCode != nil {
			return *event.ExitCode, true
		}
	}
	return 0, false
}
