package notify

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
)

// What is kept of a command line.
const (
	maxArguments = 32
	maxArgvBytes = 4096
)

// CommandLine is the command line of a process as the host numbers it: its first
// arguments, or nil if it is gone. It may hold secrets.
func CommandLine(pid int) []string {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxArgvBytes))
	if err != nil || len(raw) == 0 {
		return nil
	}
	argv := strings.Split(string(bytes.TrimSuffix(raw, []byte{0})), "\x00")
	return argv[:min(len(argv), maxArguments)]
}
