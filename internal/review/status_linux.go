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

// used returns how many files a review keeps, and the space that they take.
func used(dir string) (files int, size int64) {
	_ = filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err != nil || unix.Lstat(p, &st) != nil {
			return nil //nolint:nilerr // a folder that the command has closed
		}
		size += st.Blocks * 512
		if !e.IsDir() {
			files++
		}
		return nil
	})
	return files, size
}
