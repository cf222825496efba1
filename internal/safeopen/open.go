package safeopen

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// knownFlags are the flags that Open accepts. Others are refused by not being
// here: O_TMPFILE makes a file without a name to judge, O_PATH yields a
// descriptor that can be reopened with more rights.
const knownFlags = os.O_RDONLY | os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREATE | os.O_EXCL | os.O_SYNC | os.O_TRUNC

const accessMode = os.O_RDONLY | os.O_WRONLY | os.O_RDWR

// writeFlags are those that change a file or make one, alone or with others.
const writeFlags = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREATE | os.O_TRUNC

// Open opens a file like [os.OpenFile], if allowed agrees to where the path
// really leads. allowed gets that place as an absolute path without symbolic
// links, and whether the flags can change or make something; a link on the way
// that is the path's last component is judged too, as a read of the link.
//
// The check and the opening speak of the same object: the folder is opened
// first and its path is asked of the descriptor, the last component is then
// looked up in that very folder without following links, and only what was
// judged is opened. Files are made and cut short after the check, never before.
// Swapping a folder for a link at any moment changes which place is judged,
// never which is opened.
//
// Only regular files and folders are opened (see [TypeError]). The flags are
// those of package os; of perm only the permission bits count. A refusal is
// wrapped in an *fs.PathError. A missing folder on the way is reported before
// allowed can be asked.
//
// On Linux this needs openat2 (kernel 5.6) and /proc; without them, and on
// other systems, each component is opened in turn through [os.Root] and
// compared with what was seen there, which needs read permission on every
// folder of the path.
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

// request is what the caller of Open wants, apart from the path.
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

// createFlags make a new file and fail if something, even a dangling link,
// has come to be there.
func (r request) createFlags() int { return r.flag&^os.O_TRUNC | os.O_CREATE | os.O_EXCL }

// existingFlags open what was found and cannot make anything.
func (r request) existingFlags() int { return r.flag &^ (os.O_CREATE | os.O_EXCL) }

// action is how Open goes on after the check.
type action uint8

const (
	refuse action = iota
	followLink
	createNew
	openFound
)

// found is what stands at a resolved place; exists is false for nothing.
type found struct {
	exists bool
	mode   fs.FileMode
}

// judge asks allowed and says how to go on. It asks before it reports what is
// there, so that a refused caller does not learn whether the file exists.
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

// errChanged means that the tree changed between two looks; the look-up is
// begun again.
var errChanged = errors.New("the path keeps changing while it is opened")
