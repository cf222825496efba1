package review

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Discard drops chosen changes, so that a later command of the review sees the host's files. A nil filter
// drops all of them, and the review itself unless there is an apply that can be undone. It drops also what cannot be listed.
func (r *Review) Discard(want Filter) ([]*Change, error) {
	l := r.lister(nil)
	defer r.closeFolders()
	all, err := l.all()
	if want == nil {
		return all, r.discardAll()
	}
	if err != nil {
		return nil, err
	}
	list := chosen(all, want)
	lost := map[int]bool{} // the layers of roots that are lost
	for _, c := range list {
		if c.isLostRoot() {
			lost[c.at.root.Layer] = true
		}
	}
	views := map[*root]*view{}
	for _, c := range list {
		if views[c.at.root] == nil && !c.isLostRoot() {
			v, err := r.view(c.at.root)
			if err != nil {
				return nil, err
			}
			defer v.close()
			views[c.at.root] = v
		}
	}
	type entry struct {
		v  *view
		at *place
		c  *Change
	}
	var entries []entry
	for _, c := range list {
		if c.isLostRoot() {
			continue
		}
		entries = append(entries, entry{views[c.at.root], c.at, c})
		if c.old != nil {
			entries = append(entries, entry{views[c.at.root], c.old.at, c.old})
		}
	}
	// The deepest first, and deletions last: they may bring back a folder that is in the place of a file.
	slices.SortStableFunc(entries, func(a, b entry) int {
		if del := a.c.Kind == Deleted; del != (b.c.Kind == Deleted) {
			return map[bool]int{true: 1, false: -1}[del]
		}
		return cmp.Compare(b.at.upperPath, a.at.upperPath)
	})
	for _, e := range entries {
		if err := r.discardOne(e.v, e.c, e.at); err != nil {
			return nil, err
		}
	}
	for _, v := range views {
		if err := v.prune(); err != nil {
			return nil, err
		}
	}
	if err := l.dropUnchanged(want); err != nil || len(lost) == 0 {
		return list, err
	}
	r.closeFolders()
	return list, r.dropRoots(lost)
}

// dropRoots takes roots out of the review, with their layers.
func (r *Review) dropRoots(layers map[int]bool) error {
	r.meta.Roots = slices.DeleteFunc(r.meta.Roots, func(t root) bool { return layers[t.Layer] })
	if err := r.writeMeta(); err != nil {
		return err
	}
	return r.removeUnusedLayers()
}

func (r *Review) discardOne(v *view, c *Change, at *place) error {
	rel := at.upperPath
	switch {
	case v.root.File:
		return r.discardFile(v.root)
	case c.Kind == Deleted:
		return v.reveal(rel)
	case c.Type == Folder && c.NotCarried != "":
		if err := v.expose(path.Dir(rel)); err != nil {
			return err
		}
		return removeAll(filepath.Join(r.layer(*v.root).Upper, rel))
	case c.Kind == Mode && c.Type == Folder:
		v.touched[rel] = true
		return v.chmodUpper(rel, at.lower.Mode&0o7777)
	case c.Type == Folder:
		err := v.remove(rel, true)
		if err == unix.ENOTEMPTY || err == unix.EEXIST {
			return nil // a part of it was not chosen
		}
		return err
	}
	return v.remove(rel, false)
}

// reveal drops a deletion.
func (v *view) reveal(rel string) error {
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
	var st unix.Stat_t
	if fstatat(d, name, &st) != nil || !isWhiteout(&st) {
		return nil
	}
	return unix.Unlinkat(d, name, 0)
}

// discardFile makes the copy of a root that is a file anew.
func (r *Review) discardFile(t *root) error {
	var st unix.Stat_t
	if err := unix.Lstat(t.Path, &st); err != nil {
		return &os.PathError{Op: "stat", Path: t.Path, Err: err}
	}
	upper := r.layer(*t).Upper
	if err := os.Remove(upper); err != nil && !os.IsNotExist(err) {
		return err
	}
	var err error
	if t.Base, t.Size, err = copyRoot(t.Path, upper, &st); err != nil {
		return err
	}
	return r.writeMeta()
}

// discardAll empties the layers. Without an apply that can be undone, nothing is left of the review. If it is killed, the
// changes are all there or all gone: half of a layer would mean other changes, such as deletions.
func (r *Review) discardAll() error {
	j, err := r.readJournal()
	if err != nil {
		return err
	}
	if !j.canUndo() {
		if err := os.Remove(r.metaFile()); err != nil {
			return err
		}
		return removeAll(r.path)
	}
	if err := os.Remove(r.seenFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for i := range r.meta.Roots {
		dir := filepath.Dir(r.layer(r.meta.Roots[i]).Upper)
		if err := os.Rename(dir, dir+".discarded"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return r.removeUnusedLayers()
}

// remakeLayers makes layers anew that were discarded.
func (r *Review) remakeLayers() error {
	made := false
	for i := range r.meta.Roots {
		t := &r.meta.Roots[i]
		if _, err := os.Lstat(filepath.Dir(r.layer(*t).Upper)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := r.makeLayer(t); err != nil {
			return err
		}
		t.Start, made = 0, true // the next command is the first again
	}
	if !made {
		return nil
	}
	return r.writeMeta()
}
