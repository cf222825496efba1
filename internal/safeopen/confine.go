package safeopen

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cloche-dev/cloche/internal/pathx"
)

// Confine returns the absolute path of candidate with symbolic links resolved, or an
// *EscapeError if that is outside root. A relative candidate begins at root. Root must be an
// existing folder. The candidate, or several of its last components, may be missing, so that
// it can be the path of a new file.
//
// Links are followed as the kernel does: "link/.." is the folder above the link's target, and
// a dangling link stands for its missing target. A ".." after a missing folder leads back to
// the folder in which that folder would be created.
//
// The result is only valid at that moment. If another process can change the tree, use [Open],
// or pass the result's folder on as a descriptor.
func Confine(root, candidate string) (string, error) {
	realRoot, err := resolveRoot(root)
	if err != nil {
		return "", err
	}
	if candidate == "" {
		return "", &fs.PathError{Op: "confine", Path: candidate, Err: fs.ErrNotExist}
	}
	start := candidate
	if !filepath.IsAbs(candidate) {
		start = realRoot + string(filepath.Separator) + candidate
	}
	w := newWalk(start)
	for len(w.pending) > 0 {
		if err := w.step(); err != nil {
			return "", w.explain(err, realRoot, candidate)
		}
	}
	if !within(realRoot, w.at) {
		return "", &EscapeError{Root: realRoot, Candidate: candidate, Resolved: w.at}
	}
	return w.at, nil
}

// resolveRoot returns the real path of an existing folder.
func resolveRoot(root string) (string, error) {
	abs, err := absolute(root)
	if err != nil {
		return "", err
	}
	realRoot, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(realRoot)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", &fs.PathError{Op: "confine", Path: root, Err: syscall.ENOTDIR}
	}
	return realRoot, nil
}

// absolute puts the working folder before a relative path. Unlike filepath.Abs it keeps "..",
// because only the walk can resolve it.
func absolute(p string) (string, error) {
	if p == "" {
		return "", &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	if filepath.IsAbs(p) {
		return p, nil
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return wd + string(filepath.Separator) + p, nil
}

func within(root, p string) bool {
	return pathx.Within(filepath.ToSlash(root), filepath.ToSlash(p))
}

// place is the kind of file at which a walk is.
type place uint8

const (
	folder place = iota
	missing
	other // a file: nothing can be below it
)

// walk follows a path component by component. at never contains a link or "..".
type walk struct {
	at      string
	on      place
	pending []string
	hops    int
}

func newWalk(p string) *walk {
	w := &walk{}
	w.restart(p)
	return w
}

// restart continues at an absolute path, before the pending components.
func (w *walk) restart(p string) {
	top, names := splitAbs(p)
	w.at, w.on = top, folder
	w.pending = append(names, w.pending...)
}

// splitAbs splits an absolute path into its top ("/" or a volume) and its components, without
// empty ones.
func splitAbs(p string) (top string, names []string) {
	volume := filepath.VolumeName(p)
	return volume + string(filepath.Separator), components(p[len(volume):])
}

func components(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
}

// step processes one pending component.
func (w *walk) step() error {
	name := w.pending[0]
	w.pending = w.pending[1:]
	switch {
	case w.on == other:
		return syscall.ENOTDIR
	case name == ".":
		return nil
	case name == "..":
		w.at, w.on = filepath.Dir(w.at), w.above()
		return nil
	}
	next := filepath.Join(w.at, name)
	info, err := os.Lstat(next)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.at, w.on = next, missing
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return w.follow(next)
	case info.IsDir():
		w.at, w.on = next, folder
	default:
		w.at, w.on = next, other
	}
	return nil
}

// above returns what is above the current place: a folder, unless the whole way there is
// missing.
func (w *walk) above() place {
	if w.on == folder {
		return folder
	}
	if _, err := os.Lstat(filepath.Dir(w.at)); err != nil {
		return missing
	}
	return folder
}

// follow puts the target of a link before the pending components.
func (w *walk) follow(link string) error {
	w.hops++
	if w.hops > maxHops {
		return syscall.ELOOP
	}
	target, err := os.Readlink(link)
	if err != nil {
		return err
	}
	if filepath.IsAbs(target) {
		w.restart(target)
		return nil
	}
	w.pending = append(components(target), w.pending...)
	return nil
}

// explain turns a failed step into the error of Confine. A failure outside of the root is an
// escape: it cannot be shown that the path leads back, and the errors there must not be
// revealed to the caller.
func (w *walk) explain(err error, root, candidate string) error {
	if !within(root, w.at) && !within(w.at, root) {
		return &EscapeError{Root: root, Candidate: candidate, Resolved: w.at}
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return &fs.PathError{Op: "confine", Path: candidate, Err: err}
}

// RealPath returns the file that an absolute path leads to, with every link and ".." followed
// as the kernel does. The last components need not exist.
func RealPath(p string) (string, error) {
	return Confine(filepath.VolumeName(p)+string(filepath.Separator), p)
}
