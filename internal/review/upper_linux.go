package review

import (
	"errors"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// A view is the upper folder of a root while it is changed, with the host's below it. No command
// runs meanwhile.
type view struct {
	r            *Review
	root         *root
	upper, lower tree
	exposed      map[string]bool // folders in which the host's files show through
	touched      map[string]bool // folders that may be needed no more
}

func (r *Review) view(t *root) (*view, error) {
	v := &view{r: r, root: t, exposed: map[string]bool{}, touched: map[string]bool{}}
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
		if err := v.putFolder(d, name, rel, host.Mode, true, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return nil
	}
	if !isOpaque(d, name) {
		return nil
	}
	if hostFolder {
		if err := v.whiteouts(d, name, rel); err != nil {
			return err
		}
	}
	return unix.Lremovexattr(procName(d)+"/"+name, opaqueAttr)
}

// newName is a folder until it is complete, beside the upper folder. In it, a command could have taken the name.
const newName = "new"

// putFolder puts a folder into an upper tree, complete in one step. One that its owner cannot change is open until closeFolders.
func (v *view) putFolder(d int, name, rel string, mode uint32, hidesAll bool, flag uint) error {
	layer, err := unix.Openat(v.upper.fd, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(layer)
	for _, flags := range []int{0, unix.AT_REMOVEDIR} { // after a crash
		_ = unix.Unlinkat(layer, newName, flags)
	}
	if err := unix.Mkdirat(layer, newName, 0o700); err != nil {
		return err
	}
	if hidesAll {
		if err := unix.Lsetxattr(procName(layer)+"/"+newName, opaqueAttr, []byte("y"), 0); err != nil {
			return err
		}
	}
	if mode&0o700 != 0o700 {
		v.r.noteOpened(v.root, rel, mode)
	}
	if err := unix.Fchmodat(layer, newName, mode&0o7777|0o700, 0); err != nil {
		return err
	}
	if err := unix.Renameat2(layer, newName, d, name, flag); err != nil || flag != unix.RENAME_EXCHANGE {
		return err
	}
	return unix.Unlinkat(layer, newName, 0)
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
	if err != nil || host.Mode&unix.S_IFMT != unix.S_IFDIR || perm(host.Mode) != perm(v.r.modeOf(v.root, rel, st.Mode)) || hasXattr(d, name, opaqueAttr) {
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
	return st.Mode&unix.S_IFMT != unix.S_IFDIR || isOpaque(d, name)
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

// openWay opens the folders above a path that are in the upper tree, as far as their owner cannot change them.
func (v *view) openWay(rel string) error {
	dir := path.Dir(rel)
	if dir == "." || v.root.File {
		return nil
	}
	if err := v.openWay(dir); err != nil {
		return err
	}
	st, err := v.upper.stat(dir)
	if isGone(err) || err == nil && (typeOf(st.Mode) != Folder || st.Mode&0o700 == 0o700) {
		return nil
	}
	if err != nil {
		return err
	}
	return v.makeFolder(dir)
}

// makeFolder makes a folder as the host has it, or opens the one that is there.
func (v *view) makeFolder(rel string) error {
	d, name, err := v.upper.parent(rel)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	var st unix.Stat_t
	if err := fstatat(d, name, &st); !isGone(err) {
		if err != nil || typeOf(st.Mode) != Folder {
			return err
		}
		return v.r.openFolder(v.root, rel, d, name, st.Mode)
	}
	mode := uint32(0o755)
	if host, err := v.lower.stat(rel); err == nil && host.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode = host.Mode
	}
	err = v.putFolder(d, name, rel, mode, false, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// chmodUpper changes the mode of a folder. One that its owner cannot change is open until closeFolders.
func (v *view) chmodUpper(rel string, mode uint32) error {
	d, name, err := v.upper.parent(rel)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	v.r.noteOpened(v.root, rel, mode)
	return chmodFolder(d, name, mode&0o7777|0o700)
}
