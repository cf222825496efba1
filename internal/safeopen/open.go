package safeopen

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// knownFlags are the flags that Open accepts. Others are errors: O_TMPFILE makes a file
// without a name to check, and O_PATH gives a descriptor that can be reopened with more
// access.
const knownFlags = os.O_RDONLY | os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREATE | os.O_EXCL | os.O_SYNC | os.O_TRUNC

const accessMode = os.O_RDONLY | os.O_WRONLY | os.O_RDWR

// writeFlags are the flags that change or create a file, alone or with others.
const writeFlags = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREATE | os.O_TRUNC

// Open opens a file like [os.OpenFile], if allowed accepts where the path really leads.
// allowed gets the absolute path without symbolic links, and whether the flags can change or
// create something. If the last component of the path is a link, allowed is also called for
// the link itself, as a read.
//
// The check and the open are about the same file. The folder is opened first, and its path is
// read from the descriptor. The last component is then looked up in that folder without
// following links, and only what was checked is opened. Files are created and truncated after
// the check, never before. If a folder is replaced by a link at any time, another path may be
// checked, but only the checked file is opened.
//
// Only regular files and folders are opened (see [TypeError]). The flags are those of package
// os; only the permission bits of perm are used. An error of allowed is wrapped in an
// *fs.PathError. A missing folder on the way is reported before allowed is called.
//
// On Linux this needs openat2 (Linux 5.6) and /proc. Without them, and on other systems, each
// component is opened in turn through [os.Root] and compared with what was seen there, which
// needs read permission on every folder of the path.
func Open(path string, flag int, perm os.FileMode, allowed func(resolved string, write bool) error) (*os.File, error) {
	f, err := open(path, request{flag: flag, perm: perm.Perm(), allowed: allowed})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return f, nil
}

func open(path string, r request) (*os.File, error) {
	if err := r.checkFlags(); err != nil {
		return nil, err
	}
	abs, err := absolute(path)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	return openSystem(abs, r)
}

// request contains the arguments of Open except the path.
type request struct {
	flag    int
	perm    fs.FileMode
	allowed func(resolved string, write bool) error
}

func (r request) checkFlags() error {
	unknown := r.flag &^ knownFlags
	if unknown != 0 {
		return fmt.Errorf("flags %#x are not supported; use those of package os: %w", unknown, syscall.EINVAL)
	}
	if r.flag&accessMode == os.O_WRONLY|os.O_RDWR {
		return fmt.Errorf("O_WRONLY and O_RDWR exclude each other: %w", syscall.EINVAL)
	}
	return nil
}

func (r request) writes() bool    { return r.flag&writeFlags != 0 }
func (r request) creates() bool   { return r.flag&os.O_CREATE != 0 }
func (r request) exclusive() bool { return r.creates() && r.flag&os.O_EXCL != 0 }

// createFlags returns flags that create a new file and fail if something, even a dangling
// link, exists there meanwhile.
func (r request) createFlags() int { return r.flag&^os.O_TRUNC | os.O_CREATE | os.O_EXCL }

// existingFlags returns flags that open an existing file and cannot create one.
func (r request) existingFlags() int { return r.flag &^ (os.O_CREATE | os.O_EXCL) }

// action is how Open continues after the check.
type action uint8

const (
	refuse action = iota
	followLink
	createNew
	openFound
)

// found is what is at a resolved path.
type found struct {
	exists bool
	mode   fs.FileMode
}

// judge calls allowed and returns how to continue. It calls allowed before it reports what is
// there, so that a denied caller does not learn whether the file exists.
func (r request) judge(resolved string, at found) (action, error) {
	link := at.exists && at.mode&fs.ModeSymlink != 0 && !r.exclusive()
	if err := r.allowed(resolved, r.writes() && !link); err != nil {
		return refuse, err
	}
	switch {
	case link:
		return followLink, nil
	case !at.exists && !r.creates():
		return refuse, fs.ErrNotExist
	case !at.exists:
		return createNew, nil
	case r.exclusive():
		return refuse, fs.ErrExist
	case at.mode.IsDir() && r.writes():
		return refuse, syscall.EISDIR
	case !at.mode.IsDir() && !at.mode.IsRegular():
		return refuse, &TypeError{Path: resolved, Type: at.mode.Type()}
	}
	return openFound, nil
}

// errChanged means that the tree changed between two checks; the look-up starts again.
var errChanged = errors.New("the path keeps changing while it is opened")
