package landlock

import (
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	ll "github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/policy"
)

const (
	// forWrite is all that a tree can be used for. Device nodes are left out, as
	// is talking to devices: a writable folder is a place for files.
	forWrite = ll.ForRead | ll.WriteFile | ll.Truncate | ll.RemoveDir | ll.RemoveFile | ll.Refer |
		ll.MakeDir | ll.MakeReg | ll.MakeSock | ll.MakeFifo | ll.MakeSym
	// forDevice is what the harmless devices need, a terminal among them.
	forDevice = ll.ReadFile | ll.WriteFile | ll.IoctlDev
)

// rightsFor are the rights that an access to something of a kind comes to.
func rightsFor(a policy.Access, k host.Kind) uint64 {
	rights := uint64(0)
	switch {
	case a == policy.Hidden:
	case k == hostfs.Socket:
		rights = ll.ResolveUnix
	case a == policy.Write:
		rights = forWrite
	default:
		rights = ll.ForRead
	}
	if k != hostfs.Dir {
		rights &= ll.OfFiles
	}
	return rights
}
