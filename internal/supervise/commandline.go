package supervise

import "github.com/cloche-dev/cloche/internal/notify"

// CommandLine is the command line of a process as the host numbers it, or nil if
// it is gone. It may hold secrets.
func CommandLine(pid int) []string { return notify.CommandLine(pid) }
