// Package safeopen finds out where a path really leads, and opens files so that a change of the
// tree between that check and the open cannot lead to another file.
//
// The naive way is to compare strings and then to open:
//
//	if strings.HasPrefix(filepath.Clean(p), root) { return os.Open(p) }
//
// It has three holes: "/workspace2" begins with "/workspace", "link/.." is not the folder that
// contains link, and a process that can write in the workspace can replace a folder by a
// symbolic link between the check and the open. [Confine] closes the first two. Its result is
// only valid at that moment, so it is for messages, listings and paths that nobody else can
// change. [Open] closes the third as well.
//
// A hard link is a second name of the same file, not a way to another one. The kernel decides
// who may make one (fs.protected_hardlinks), and this package does not check for them.
package safeopen

import (
	"fmt"
	"io/fs"
)

// maxHops is the limit on symbolic links in one path, as in the kernel.
const maxHops = 40

// EscapeError means that a path leads out of its root.
type EscapeError struct {
	Root      string // the root with its links resolved
	Candidate string // the path as given
	Resolved  string // where it leads, as far as it could be followed
}

func (e *EscapeError) Error() string {
	return fmt.Sprintf("path %q leads to %q, outside %q; use a path inside it", e.Candidate, e.Resolved, e.Root)
}

// Is makes an escape match [fs.ErrPermission].
func (e *EscapeError) Is(target error) bool { return target == fs.ErrPermission }

// TypeError means that Open found something other than a regular file or a folder. Opening a
// FIFO may block forever, and opening a device may trigger an action, so neither is opened.
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
