package egress

import "github.com/cloche-dev/cloche/plan"

// A Track follows one connection, so that the end of a command can wait for the
// records of what was the command's.
type Track interface {
	// Owned tells whose process has the connection, as soon as that is known; pid 0
	// is nobody who could be found. It is called at most once, before Ended.
	Owned(pid int)
	// Ended takes the record. It is called once.
	Ended(plan.Connection)
}
