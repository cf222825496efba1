package review

import (
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A view is the upper folder of a root while it is changed, with the host's below it. No command
// runs meanwhile.
type view struct {
	root         *root
	upper, lower tree
	exposed      map[string]bool // folders in which the host's files show through
	touched      map[string]bool // folders that may be needed no more
}

func (r *Review) view(t *root) (*view, error) {
	v := &view{root: t, exposed: map[string]bool{}, touched: map[string]bool{}}
	var err error
	v.upper, v.lower, err = r.trees(t)
	return v, err
}

func (v *view) close() {
	v.upper.close()
	v.lower.close()
}

// expose makes the host's files show through in a folder, and everything look as before: a folder that hid
// them all gets a whiteout for each. After that, removing an entry brings back the host's file and nothing else.
func (v *view) expose(rel string) error {
	if rel == "." || rel == "" || v.exposed[rel] || v.root.File {
		return nil
	}
	if err := v.expose(path.Dir(rel)); err != nil {
		return err
	}
	v.exposed[rel] = true
	d, name, err := v.upper.parent(rel)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(d)
	var st unix.Stat_t
	if err := fstatat(d, name, &st); err != nil {
		if isGone(err) {
			return nil
		}
		return err
	}
	host, err := v.lower.stat(rel)
	hostFolder := err == nil && host.Mode&unix.S_IFMT == unix.S_IFDIR
	switch {
	case isWhiteout(&st) && hostFolder:
		if err := v.whiteoutToFolder(d, name, &host); err != nil {
			return err
		}
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return nil
	}
	if !strings.HasPrefix(xattr(d, name, opaqueAttr), "y") {
		return nil
	}
	if hostFolder {
		if err := v.whiteouts(d, name, rel); err != nil {
			return err
		}
	}
	return unix.Lremovexattr(procName(d)+"/"+name, opaqueAttr)
}

// newName is for an entry of an upper folder until it is complete. After a crash it shows up as a change
// that a person can discard.
const newName = ".cloche-review-new"

// whiteoutToFolder puts an empty folder that hides everything in the place of a whiteout.
func (v *view) whiteoutToFolder(d int, name string, host *unix.Stat_t) error {
	_ = unix.Unlinkat(d, newName, unix.AT_REMOVEDIR)
	if err := unix.Mkdirat(d, newName, 0o700); err != nil {
		return err
	}
	if err := unix.Lsetxattr(procName(d)+"/"+newName, opaqueAttr, []byte("y"), 0); err != nil {
		return err
	}
	if err := unix.Fchmodat(d, newName, host.Mode&0o7777, 0); err != nil {
		return err
	}
	if err := unix.Renameat2(d, newName, d, name, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	return unix.Unlinkat(d, newName, 0)
}

// whiteouts puts one for each file of the host that a folder which hides them all does not have, and has each of its
// folders hide what the host has in it.
func (v *view) whiteouts(d int, name, rel string) error {
	upper, err := openDir(d, name, true)
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	dl, lname, err := v.lower.parent(rel)
	if err != nil {
		return err
	}
	defer unix.Close(dl)
	lower, err := openDir(dl, lname, false)
	if err != nil {
		return err
	}
	defer unix.Close(lower)
	names, err := readNames(lower)
	if err != nil {
		return err
	}
	for _, n := range names {
		var st unix.Stat_t
		err := fstatat(upper, n, &st)
		switch {
		case isGone(err):
			err = unix.Mknodat(upper, n, unix.S_IFCHR, 0)
		case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR:
			err = unix.Lsetxattr(procName(upper)+"/"+n, opaqueAttr, []byte("y"), 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// remove removes an entry of the upper folder, so that the host's file shows there.
func (v *view) remove(rel string, isDir bool) error {
	if err := v.expose(path.Dir(rel)); err != nil {
		return err
	}
	v.touched[path.Dir(rel)] = true
	d, name, err := v.upper.parent(rel)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(d)
	flags := 0
	if isDir {
		flags = unix.AT_REMOVEDIR
	}
	err = unix.Unlinkat(d, name, flags)
	if isGone(err) {
		return nil
	}
	return err
}

// prune removes folders that say nothing any more.
func (v *view) prune() error {
	all := map[string]bool{}
	for rel := range v.touched {
		for ; rel != "." && rel != "" && rel != "/"; rel = path.Dir(rel) {
			all[rel] = true
		}
	}
	dirs := make([]string, 0, len(all))
	for rel := range all {
		dirs = append(dirs, rel)
	}
	// The deepest first: what is below a folder comes after it in this order.
	slices.Sort(dirs)
	slices.Reverse(dirs)
	for _, rel := range dirs {
		if err := v.pruneOne(rel); err != nil {
			return err
		}
	}
	return nil
}

func (v *view) pruneOne(rel string) error {
	d, name, err := v.upper.parent(rel)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(d)
	var st unix.Stat_t
	if err := fstatat(d, name, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil // gone already
	}
	host, err := v.lower.stat(rel)
	if err != nil || host.Mode&unix.S_IFMT != unix.S_IFDIR || perm(host.Mode) != perm(st.Mode) || hasXattr(d, name, opaqueAttr) {
		return nil // it is a change
	}
	err = unix.Unlinkat(d, name, unix.AT_REMOVEDIR)
	if err == unix.ENOTEMPTY || err == unix.EEXIST || isGone(err) {
		return nil
	}
	return err
}

// hides reports whether the command sees nothing of what the host has in a folder.
func (v *view) hides(rel string) bool {
	if rel == "." || rel == "" {
		return false
	}
	if v.hides(path.Dir(rel)) {
		return true
	}
	d, name, err := v.upper.parent(rel)
	if err != nil {
		return false
	}
	defer unix.Close(d)
	var st unix.Stat_t
	if fstatat(d, name, &st) != nil {
		return false
	}
	return st.Mode&unix.S_IFMT != unix.S_IFDIR || strings.HasPrefix(xattr(d, name, opaqueAttr), "y")
}

// makeParents makes the folders of the upper tree above a path, as the host has them.
func (v *view) makeParents(rel string) error {
	dir := path.Dir(rel)
	if dir == "." || v.root.File {
		return nil
	}
	if err := v.makeParents(dir); err != nil {
		return err
	}
	return v.makeFolder(dir)
}

func (v *view) makeFolder(rel string) error {
	d, name, err := v.upper.parent(rel)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	err = unix.Mkdirat(d, name, 0o700)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	mode := uint32(0o755)
	if host, err := v.lower.stat(rel); err == nil && host.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode = host.Mode & 0o7777
	}
	return unix.Fchmodat(d, name, mode, 0)
}

func (v *view) chmodUpper(rel string, mode uint32) error {
	d, name, err := v.upper.parent(rel)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	return chmodFolder(d, name, mode)
}
