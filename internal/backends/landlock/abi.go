package landlock

import (
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	ll "github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/policy"
)

const (
	// forWrite are all rights for a writable tree, except creating device nodes and ioctl on
	// devices: a writable folder is for files.
	forWrite = ll.ForRead | ll.WriteFile | ll.Truncate | ll.RemoveDir | ll.RemoveFile | ll.Refer |
		ll.MakeDir | ll.MakeReg | ll.MakeSock | ll.MakeFifo | ll.MakeSym
	// forDevice are the rights for the harmless devices, which include a terminal.
	forDevice = ll.ReadFile | ll.WriteFile | ll.IoctlDev
)

// rightsFor returns the Landlock rights for an access to a file of a kind.
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
