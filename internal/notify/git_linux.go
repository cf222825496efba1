//go:build amd64 || arm64

package notify

import "github.com/cloche-dev/cloche/plan"

// git asks whether git on the host could run something because of a change.
func (c *call) git(op plan.Op, at, source *place, mode uint64) bool { return true }

func (c *call) gitRename(from, to *place, exchange bool) bool { return true }
