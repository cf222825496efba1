package safeopen

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// maxRounds limits how often a look-up is started again because the tree changed meanwhile.
const maxRounds = 100

// openPortable uses only os.Root. Each folder is checked without following links, opened, and
// compared with what was checked: if it was replaced by a link in between, the two differ and
// the look-up starts again.
func openPortable(path string, r request) (*os.File, error) {
	for range maxRounds {
		f, err := openOnce(path, r)
		if !errors.Is(err, errChanged) {
			return f, err
		}
	}
	return nil, errChanged
}

func openOnce(path string, r request) (*os.File, error) {
	d, err := newDescent(path)
	if err != nil {
		return nil, err
	}
	defer d.close()
	return d.run(r)
}

// descent is a walk that keeps each folder from the top to the current one open, so that ".."
// leads back to the folder that it came through.
type descent struct {
	volume  string
	folders []*os.Root // the top and each folder below it
	names   []string   // one fewer than folders
	pending []string
	hops    int
	slash   bool // the path must name a folder
}

func newDescent(path string) (*descent, error) {
	d := &descent{slash: os.IsPathSeparator(path[len(path)-1])}
	return d, d.restart(path)
}

// restart continues at the top of an absolute path, before the pending components.
func (d *descent) restart(path string) error {
	top, names := splitAbs(path)
	root, err := os.OpenRoot(top)
	if err != nil {
		return plain(err)
	}
	d.close()
	d.volume, d.folders, d.names = top, []*os.Root{root}, nil
	d.pending = append(names, d.pending...)
	return nil
}

func (d *descent) close() {
	for _, f := range d.folders {
		f.Close()
	}
	d.folders = nil
}

func (d *descent) here() *os.Root { return d.folders[len(d.folders)-1] }

func (d *descent) path(name ...string) string {
	return d.volume + filepath.Join(append(d.names[:len(d.names):len(d.names)], name...)...)
}

// run processes the components. The last one is checked and opened.
func (d *descent) run(r request) (*os.File, error) {
	for len(d.pending) > 0 {
		name := d.pending[0]
		d.pending = d.pending[1:]
		switch {
		case name == ".":
		case name == "..":
			d.up()
		case len(d.pending) == 0 && !d.slash:
			f, action, err := d.last(name, r)
			if err != nil || action != followLink {
				return f, err
			}
		default:
			if err := d.enter(name); err != nil {
				return nil, err
			}
		}
	}
	return d.openHere(r)
}

func (d *descent) up() {
	if len(d.names) == 0 {
		return
	}
	d.here().Close()
	d.folders = d.folders[:len(d.folders)-1]
	d.names = d.names[:len(d.names)-1]
}

// enter enters a folder or follows a link.
func (d *descent) enter(name string) error {
	seen, err := d.here().Lstat(name)
	if err != nil {
		return plain(err)
	}
	if seen.Mode()&fs.ModeSymlink != 0 {
		return d.follow(name)
	}
	if !seen.IsDir() {
		return syscall.ENOTDIR
	}
	sub, err := d.here().OpenRoot(name)
	if err != nil {
		return changedOr(err)
	}
	if opened, err := sub.Stat("."); err != nil || !os.SameFile(seen, opened) {
		sub.Close()
		return errChanged
	}
	if name, err = realName(d.here(), name, seen); err != nil {
		sub.Close()
		return err
	}
	d.names = append(d.names, name)
	d.folders = append(d.folders, sub)
	return nil
}

// follow puts the target of a link before the pending components.
func (d *descent) follow(name string) error {
	d.hops++
	if d.hops > maxHops {
		return syscall.ELOOP
	}
	target, err := d.here().Readlink(name)
	if err != nil {
		return changedOr(err)
	}
	if target == "" {
		return fs.ErrNotExist
	}
	if len(d.pending) == 0 {
		d.slash = d.slash || os.IsPathSeparator(target[len(target)-1])
	}
	if filepath.IsAbs(target) {
		return d.restart(target)
	}
	d.pending = append(components(target), d.pending...)
	return nil
}

// last checks the last component and opens it.
func (d *descent) last(name string, r request) (*os.File, action, error) {
	seen, err := d.here().Lstat(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, refuse, plain(err)
	}
	at := found{exists: err == nil}
	if at.exists {
		at.mode = seen.Mode()
		if name, err = realName(d.here(), name, seen); err != nil {
			return nil, refuse, err
		}
	}
	resolved := d.path(name)
	action, err := r.judge(resolved, at)
	if err != nil {
		return nil, refuse, err
	}
	var f *os.File
	switch action {
	case followLink:
		err = d.follow(name)
	case createNew:
		f, err = d.create(name, r)
	default:
		f, err = d.openSeen(name, seen, r)
	}
	return f, action, err
}

// create creates the file. O_EXCL follows no link and opens no existing file.
func (d *descent) create(name string, r request) (*os.File, error) {
	f, err := d.here().OpenFile(name, r.createFlags(), r.perm)
	if errors.Is(err, fs.ErrExist) && !r.exclusive() {
		return nil, errChanged
	}
	return f, plain(err)
}

// openSeen opens the file that was checked. It is truncated only after it has proved to be the
// same file.
func (d *descent) openSeen(name string, seen fs.FileInfo, r request) (*os.File, error) {
	f, err := d.here().OpenFile(name, r.existingFlags()&^os.O_TRUNC|openNonblock, 0)
	if err != nil {
		return nil, changedOr(err)
	}
	opened, err := f.Stat()
	switch {
	case err != nil || !os.SameFile(seen, opened):
		err = errChanged
	case r.flag&os.O_TRUNC != 0:
		err = f.Truncate(0)
	}
	if err != nil {
		f.Close()
		return nil, plain(err)
	}
	return f, nil
}

// openHere opens the folder that the path led to by "/", "." or "..".
func (d *descent) openHere(r request) (*os.File, error) {
	resolved := d.path()
	if _, err := r.judge(resolved, found{exists: true, mode: fs.ModeDir}); err != nil {
		return nil, err
	}
	f, err := d.here().Open(".")
	return f, plain(err)
}

// changedOr interprets an error of opening a file that was just checked: if the file is gone
// or has become a link, the tree has changed.
func changedOr(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) || isEscape(err) {
		return errChanged
	}
	return plain(err)
}

// isEscape recognizes os.Root's error for a name that leads out of its folder, which has no
// exported value. The name is then no longer the folder that was checked.
func isEscape(err error) bool { return strings.Contains(err.Error(), "escapes from parent") }

// plain removes the path from an error; Open adds the caller's path.
func plain(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// realName returns the name under which a folder lists the file that was found as name. On
// systems that ignore case the two can differ, and a rule about ".ssh" must not be bypassed by
// asking for ".SSH".
func realName(dir *os.Root, name string, seen fs.FileInfo) (string, error) {
	if runtime.GOOS != "darwin" && runtime.GOOS != "windows" {
		return name, nil
	}
	return listedName(dir, name, seen)
}

// listedName is realName for every system. A file that is not in the list has no name to check
// and counts as changed.
func listedName(dir *os.Root, name string, seen fs.FileInfo) (string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return "", plain(err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return "", plain(err)
	}
	if slices.Contains(names, name) {
		return name, nil
	}
	for _, n := range names {
		if info, err := dir.Lstat(n); err == nil && os.SameFile(info, seen) {
			return n, nil
		}
	}
	return "", errChanged
}
