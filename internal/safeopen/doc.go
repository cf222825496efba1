// Package safeopen answers where a path really leads, and opens files without
// a gap between that answer and the opening.
//
// The naive way is to compare strings and then to open:
//
//	if strings.HasPrefix(filepath.Clean(p), root) { return os.Open(p) }
//
// It has three holes: "/workspace2" begins with "/workspace", "link/.." is not
// the folder that holds link, and whoever can write in the workspace can put a
// symbolic link in place of a folder between the two lines. [Confine] closes
// the first two; it judges a moment and suits messages, listings and paths
// that nobody else can change. [Open] closes the third as well.
//
// A hard link is a second name of the same file, not a way to another one. The
// kernel decides who may make one (fs.protected_hardlinks), and nothing here
// looks for them.
package safeopen

import (
	"fmt"
	"io/fs"
)

// maxHops bounds the symbolic links followed in one path, as the kernel does.
const maxHops = 40

// EscapeError means that a path leads out of its root.
type EscapeError struct {
	Root      string // the root with its links resolved
	Candidate string // the path as it was given
	Resolved  string // where it leads, as far as it could be followed
}

func (e *EscapeError) Error() string {
	return fmt.Sprintf("path %q leads to %q, outside %q; use a path inside it", e.Candidate, e.Resolved, e.Root)
}

// Is makes an escape match [fs.ErrPermission].
func (e *EscapeError) Is(target error) bool { return target == fs.ErrPermission }

// TypeError means that Open found something other than a regular file or a
// folder. Opening a FIFO may wait for ever, and opening a device may act on
// it, so neither happens.
type TypeError struct {
	Path string
	Type fs.FileMode
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("%q is a %s; only regular files and folders are opened", e.Path, typeName(e.Type))
}

func typeName(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "FIFO"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}
