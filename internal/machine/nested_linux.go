package machine

import (
	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/hostfs"
)

// Nested reports whether this process is inside of a sandbox of cloche that
// shows its policy. A variable in the environment would not do, because anybody
// can set it: the file has to lie on a read-only mount below /run, which outside
// of a sandbox only root could make.
func Nested() bool {
	var fs unix.Statfs_t
	return unix.Statfs(hostfs.PolicyFile, &fs) == nil && fs.Flags&unix.ST_RDONLY != 0
}
