package review

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Status returns the reviews of the user, the oldest first.
func (s Store) Status() ([]Status, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Status
	for _, e := range entries {
		r, err := look(filepath.Join(s.dir, e.Name()))
		if errors.Is(err, ErrNone) {
			continue // being made or removed
		}
		if err != nil {
			return nil, err
		}
		st := Status{Name: r.meta.Name, Workspace: r.meta.Workspace, Began: r.meta.Began, Running: r.isLocked()}
		st.Files, st.Size = used(r.path)
		for _, t := range r.meta.Roots {
			st.Roots = append(st.Roots, t.Path)
		}
		if j, err := r.readJournal(); err == nil {
			st.CanUndo = j.canUndo()
		}
		list = append(list, st)
	}
	slices.SortStableFunc(list, func(a, b Status) int { return a.Began.Compare(b.Began) })
	return list, nil
}

// isLocked reports whether another process has the review open.
func (r *Review) isLocked() bool {
	f, err := os.Open(filepath.Join(r.path, "lock"))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// used returns how many files a review keeps, and the space that they take. A command may run: no link is followed that it puts there. What is
// in a folder that it has closed, or in one below maxDepth, is not counted.
func used(dir string) (files int, size int64) {
	var count func(fd, depth int)
	count = func(fd, depth int) {
		names, err := readNames(fd)
		if err != nil {
			return
		}
		for _, name := range names {
			var st unix.Stat_t
			if fstatat(fd, name, &st) != nil {
				continue
			}
			size += st.Blocks * 512
			if typeOf(st.Mode) != Folder {
				files++
				continue
			}
			if depth == maxDepth {
				continue
			}
			if below, err := openDir(fd, name, false); err == nil {
				count(below, depth+1)
				unix.Close(below)
			}
		}
	}
	t, err := openTree(dir)
	if err != nil {
		return 0, 0
	}
	defer t.close()
	count(t.fd, 0)
	return files, size
}
