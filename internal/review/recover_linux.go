package review

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// recover finishes what an apply that was killed has left: of each change that it was about to make, it finds out whether
// it was made. A file that was not put in place yet is removed; its change still is in the review.
func (r *Review) recover() error {
	if _, err := os.Lstat(r.pendingFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	j, err := r.readJournal()
	if err != nil {
		return err
	}
	if _, err := os.Lstat(r.journalFile()); errors.Is(err, fs.ErrNotExist) {
		return os.Remove(r.pendingFile()) // it had not begun
	}
	w, err := r.appendJournal()
	if err != nil {
		return err
	}
	a, err := r.openApplier(&Outcome{}, w, j.stages)
	if err != nil {
		return err
	}
	err = a.recover(j)
	a.whole = err == nil
	return errors.Join(err, a.close())
}

func (a *applier) recover(j *journal) error {
	var settle []*record
	for _, rec := range j.list {
		t := a.targetOf(rec.Root)
		if t == nil {
			continue
		}
		if err := t.openStage(a.store); err != nil {
			return err
		}
		switch {
		case !rec.done && a.made(t, rec):
			a.journal.add(a.doneEntry(t, &rec.entry))
			rec.done = true
			settle = append(settle, rec)
		case j.undo && rec.done && !rec.undone && a.undone(t, rec):
			undone := a.doneEntry(t, &rec.entry)
			undone.Step = stepUndone
			a.journal.add(undone)
			if err := a.dropStaged(t, stageName(rec.N)); err != nil {
				return err
			}
		case rec.done && !rec.undone && rec.N > j.settled:
			settle = append(settle, rec)
		}
	}
	if err := a.removeUnused(j); err != nil {
		return err
	}
	if err := a.journal.flush(true); err != nil {
		return err
	}
	for _, rec := range settle {
		if err := a.settle(a.targetOf(rec.Root), &rec.entry); err != nil {
			return err
		}
		a.n = rec.N
	}
	if len(settle) > 0 {
		a.journal.add(entry{Step: stepSettled, N: a.n})
	}
	return a.journal.flush(false)
}

func (a *applier) targetOf(rootPath string) *target {
	for root, t := range a.targets {
		if root.Path == rootPath {
			return t
		}
	}
	return nil
}

// made reports whether a change was made. Most are a rename from or to the stage.
func (a *applier) made(t *target, rec *record) bool {
	var st unix.Stat_t
	staged := fstatat(t.stage, stageName(rec.N), &st) == nil
	if !staged && t.stage != a.store {
		staged = fstatat(a.store, stageName(rec.N), &st) == nil
	}
	host, err := t.lower.stat(string(rec.Path))
	switch rec.Op {
	case opPut:
		return !staged && err == nil && host.Ino == rec.Ino
	case opReplace:
		return staged && st.Ino != rec.Ino
	case opDelete:
		return staged
	case opMkdir:
		return err == nil && typeOf(host.Mode) == Folder
	case opRmdir:
		return isGone(err)
	case opMode:
		return err == nil && perm(host.Mode) == rec.Mode
	}
	return false
}

// undone reports whether an undo that was killed has taken a change back.
func (a *applier) undone(t *target, rec *record) bool {
	var st unix.Stat_t
	staged := fstatat(t.stage, stageName(rec.N), &st) == nil || fstatat(a.store, stageName(rec.N), &st) == nil
	host, err := t.lower.stat(string(rec.Path))
	switch rec.Op {
	case opPut:
		return isGone(err)
	case opReplace:
		return !staged || st.Ino == rec.Ino
	case opDelete:
		return !staged
	case opMkdir:
		return isGone(err)
	case opRmdir:
		return err == nil
	case opMode:
		return err == nil && rec.OldMode != 0 && perm(host.Mode) == perm(rec.OldMode|host.Mode&unix.S_IFMT)
	}
	return false
}

// removeUnused removes from the stages what was not put in place.
func (a *applier) removeUnused(j *journal) error {
	stages := []int{a.store}
	for _, t := range a.targets {
		if t.stage != a.store {
			stages = append(stages, t.stage)
		}
	}
	for _, stage := range stages {
		names, err := readNames(stage)
		if err != nil {
			return err
		}
		for _, name := range names {
			n, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			rec := j.byN[n]
			var st unix.Stat_t
			if rec != nil && (rec.done || rec.Op == opDelete || fstatat(stage, name, &st) == nil && st.Ino != rec.Ino) {
				continue
			}
			if err := unix.Unlinkat(stage, name, 0); err == unix.EISDIR {
				err = unix.Unlinkat(stage, name, unix.AT_REMOVEDIR)
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Undo takes the last apply back: the host gets back what was replaced, and the changes are in the review again. A
// file that was changed since stays as it is, and is reported.
func (r *Review) Undo() (*Outcome, error) {
	j, err := r.readJournal()
	if err != nil {
		return nil, err
	}
	if !j.canUndo() {
		return nil, ErrNothingToUndo
	}
	if err := r.setPending(); err != nil {
		return nil, err
	}
	w, err := r.appendJournal()
	if err != nil {
		return nil, err
	}
	out := &Outcome{}
	a, err := r.openApplier(out, w, j.stages)
	if err != nil {
		return nil, err
	}
	a.journal.add(entry{Step: stepUndo})
	err = a.journal.flush(true)
	for _, rec := range slices.Backward(j.list) {
		t := a.targetOf(rec.Root)
		if err != nil {
			break
		}
		if !rec.done || rec.undone || t == nil {
			continue
		}
		c := rec.change(t)
		if err := a.undo(t, rec); err != nil {
			out.fail(c, err)
			continue
		}
		undone := a.doneEntry(t, &rec.entry)
		undone.Step = stepUndone
		a.journal.add(undone)
		if err = a.journal.flush(false); err != nil {
			break
		}
		if rec.Op != opMode || !rec.isFolder(t) {
			out.Applied = append(out.Applied, c)
		}
	}
	slices.Reverse(out.Applied)
	a.whole = err == nil
	return out, errors.Join(err, a.close())
}

func (j *journal) canUndo() bool {
	return slices.ContainsFunc(j.list, func(rec *record) bool { return rec.done && !rec.undone })
}

func (rec *record) isFolder(t *target) bool {
	st, err := t.lower.stat(string(rec.Path))
	return err == nil && typeOf(st.Mode) == Folder
}

// change describes a record as the change that undoing it is.
func (rec *record) change(t *target) *Change {
	c := &Change{Root: t.root.base(), Kind: Changed}
	c.setPath(string(rec.Path))
	switch rec.Op {
	case opPut, opMkdir:
		c.Kind = Deleted
	case opDelete, opRmdir:
		c.Kind = Added
	case opMode:
		c.Kind = Mode
	}
	return c
}

var errSince = errors.New("it was changed since the apply, and stays as it is")

// undo takes one change back. The review gets it back first, so that it is never nowhere.
func (a *applier) undo(t *target, rec *record) error {
	if err := t.openStage(a.store); err != nil {
		return err
	}
	rel := string(rec.Path)
	d, name, err := t.lower.parent(rel)
	if err != nil {
		return (&job{op: rec.Op}).where(err)
	}
	defer unix.Close(d)
	var host unix.Stat_t
	err = fstatat(d, name, &host)
	there := err == nil
	ours := there && (rec.Ctime == host.Ctim.Nano() || typeOf(host.Mode) == Folder)
	staged := stageName(rec.N)
	switch rec.Op {
	case opPut, opReplace:
		if !ours || host.Ino != rec.Ino {
			return errSince
		}
		if err := a.unsettle(t, rec); err != nil {
			return err
		}
		return a.takeBack(t, rec, d, name)
	case opDelete:
		if there {
			return errSince
		}
		if t.far != "" {
			if err := copyEntry(a.store, staged, t.stage, staged, false); err != nil && err != unix.EEXIST {
				return err
			}
		}
		if err := a.hide(t, rel); err != nil {
			return err
		}
		if err := unix.Renameat2(t.stage, staged, d, name, unix.RENAME_NOREPLACE); err != nil {
			return err
		}
		return a.dropStaged(t, staged)
	case opMkdir:
		if !there {
			return nil
		}
		if err := t.makeParents(rel); err != nil {
			return err
		}
		if err := t.makeFolder(rel); err != nil {
			return err
		}
		if err := t.chmodUpper(rel, rec.Mode); err != nil {
			return err
		}
		err := unix.Unlinkat(d, name, unix.AT_REMOVEDIR)
		if err == unix.ENOTEMPTY || err == unix.EEXIST {
			return errSince
		}
		return err
	case opRmdir:
		if there {
			return errSince
		}
		if err := a.hide(t, rel); err != nil {
			return err
		}
		if err := unix.Mkdirat(d, name, 0o700); err != nil {
			return err
		}
		return chmodFolder(d, name, rec.OldMode)
	case opMode:
		if !ours {
			return errSince
		}
		if rec.OldMode == 0 { // a new folder, which goes as a whole
			return chmodAt(d, name, &host, perm(host.Mode|0o700))
		}
		if err := a.unsettle(t, rec); err != nil {
			return err
		}
		return chmodAt(d, name, &host, perm(rec.OldMode|host.Mode&unix.S_IFMT))
	}
	return nil
}

// takeBack exchanges the new file for what it replaced.
func (a *applier) takeBack(t *target, rec *record, d int, name string) error {
	staged := stageName(rec.N)
	if rec.Op == opPut {
		if err := unix.Renameat2(d, name, t.stage, staged, unix.RENAME_NOREPLACE); err != nil {
			return err
		}
	} else {
		if t.far != "" {
			if err := copyEntry(a.store, staged, t.stage, staged, false); err != nil && err != unix.EEXIST {
				return err
			}
		}
		if err := unix.Renameat2(d, name, t.stage, staged, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
	}
	var out unix.Stat_t
	err := fstatat(t.stage, staged, &out)
	if err != nil || out.Ino != rec.Ino {
		err = errSince
	} else if typeOf(out.Mode) == Folder {
		err = emptyFolder(t.stage, staged)
	}
	if err != nil {
		flag := uint(unix.RENAME_EXCHANGE)
		if rec.Op == opPut {
			flag = unix.RENAME_NOREPLACE
		}
		return errors.Join(err, unix.Renameat2(t.stage, staged, d, name, flag))
	}
	if t.root.File {
		err = a.r.setBase(t.root, d, name)
	}
	return errors.Join(err, a.dropStaged(t, staged))
}

// dropStaged removes what is in the review again, or was put back.
func (a *applier) dropStaged(t *target, staged string) error {
	for _, dir := range []int{t.stage, a.store} {
		err := unix.Unlinkat(dir, staged, 0)
		if err == unix.EISDIR {
			err = unix.Unlinkat(dir, staged, unix.AT_REMOVEDIR)
		}
		if err != nil && !isGone(err) {
			return err
		}
	}
	return nil
}

// unsettle puts an applied change into the review again.
func (a *applier) unsettle(t *target, rec *record) error {
	rel := string(rec.Upper)
	switch {
	case rel == "" || t.root.File:
		return nil
	case rec.isFolder(t):
		if err := t.makeParents(rel); err != nil {
			return err
		}
		if err := t.makeFolder(rel); err != nil {
			return err
		}
		if rec.Op != opMode {
			return nil
		}
		return t.chmodUpper(rel, rec.Mode)
	}
	var st unix.Stat_t
	if fstatat(a.store, upperName(rec.N), &st) != nil {
		return nil // it is in the review already
	}
	if err := t.makeParents(rel); err != nil {
		return err
	}
	d, name, err := t.upper.parent(rel)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	err = unix.Renameat2(a.store, upperName(rec.N), d, name, unix.RENAME_NOREPLACE)
	if err == unix.EEXIST {
		return nil // a later command has made another one
	}
	return err
}

// hide has the command see no file of the host at a path.
func (a *applier) hide(t *target, rel string) error {
	if t.hides(path.Dir(rel)) {
		return nil
	}
	if err := t.makeParents(rel); err != nil {
		return err
	}
	if err := t.expose(path.Dir(rel)); err != nil {
		return err
	}
	d, name, err := t.upper.parent(rel)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(d)
	err = unix.Mknodat(d, name, unix.S_IFCHR, 0)
	if err == unix.EEXIST {
		return nil
	}
	return err
}
