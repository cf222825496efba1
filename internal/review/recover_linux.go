package review

import (
	"errors"
	"fmt"
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
	if err := r.closeLeftOpen(); err != nil {
		return err
	}
	defer r.closeFolders()
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
	return withFix(errors.Join(err, a.close()))
}

func (a *applier) recover(j *journal) error {
	var settle []*record
	for _, t := range a.targets { // also without a record: it may have been killed before it wrote one
		if err := t.openStage(a.store); err != nil {
			return err
		}
	}
	for _, rec := range j.list {
		t := a.targetOf(rec.Root)
		if t == nil && a.r.hasRoot(rec.Root) && !rec.undone {
			return fmt.Errorf("%s cannot be found any more, and an apply there was killed: put it back, or drop everything: cloche review discard", rec.Root)
		}
		if t == nil {
			continue
		}
		if !rec.done {
			if err := a.giveBackOther(t, rec); err != nil {
				return err
			}
		} else if j.undo && !rec.undone {
			if err := a.retakeOriginal(t, &rec.entry); err != nil {
				return err
			}
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
	if err := a.unfetchAll(j); err != nil {
		return err
	}
	if len(settle) > 0 {
		a.journal.add(entry{Step: stepSettled, N: a.n})
	}
	return a.journal.flush(false)
}

// giveBackOther takes a change back that was killed before it saw that it had moved another file of the host's than the one that was listed.
func (a *applier) giveBackOther(t *target, rec *record) error {
	var st unix.Stat_t
	staged := stageName(rec.N)
	if rec.HostIno == 0 || fstatat(t.stage, staged, &st) != nil || st.Ino == rec.HostIno || st.Ino == rec.Ino {
		return nil
	}
	d, name, err := t.lower.parent(string(rec.Path))
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(d)
	if rec.Op == opDelete {
		err = unix.Renameat2(t.stage, staged, d, name, unix.RENAME_NOREPLACE)
	} else if err = fstatat(d, name, &st); err == nil && st.Ino == rec.Ino {
		err = exchangeBack(t.stage, staged, d, name, rec.Ino)
	}
	if err == unix.EEXIST || isGone(err) {
		return nil // the host has a newer one, or wants none
	}
	return err
}

// hasRoot reports whether a path is a root of the review.
func (r *Review) hasRoot(path string) bool {
	return slices.ContainsFunc(r.meta.Roots, func(t root) bool { return t.Path == path })
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

// unfetchAll moves back what an undo had moved to a stage in a root. What the store still has was not moved whole.
func (a *applier) unfetchAll(j *journal) error {
	for _, t := range a.far() {
		names, err := readNames(t.stage)
		if err != nil {
			return err
		}
		for _, name := range names {
			var st unix.Stat_t
			n, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			if fstatat(a.store, name, &st) == nil {
				err = unlinkAny(t.stage, name)
			} else if rec := j.byN[n]; rec != nil && rec.done {
				err = a.unfetch(t, rec)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// unlinkAny removes a file or an empty folder.
func unlinkAny(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == unix.EISDIR {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	return err
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
			if err := unlinkAny(stage, name); err != nil {
				return err
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
	defer r.closeFolders()
	if err := r.setPending(); err != nil {
		return nil, withFix(err)
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
		if !rec.done || rec.undone {
			continue
		}
		if t == nil {
			out.fail(rec.change(rec.Root), errors.New("its writable path cannot be found any more"))
			continue
		}
		c := rec.change(t.root.base())
		if err = a.undo(t, rec); err != nil {
			err = errors.Join(err, a.unfetch(t, rec))
		}
		if isFull(err) {
			break
		} else if err != nil {
			out.fail(c, err)
			err = nil
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
	return out, withFix(errors.Join(err, a.close()))
}

func (j *journal) canUndo() bool {
	return slices.ContainsFunc(j.list, func(rec *record) bool { return rec.done && !rec.undone })
}

func (rec *record) isFolder(t *target) bool {
	st, err := t.lower.stat(string(rec.Path))
	return err == nil && typeOf(st.Mode) == Folder
}

// change describes a record as the change that undoing it is.
func (rec *record) change(base string) *Change {
	c := &Change{Root: base, Kind: Changed}
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
		return a.takeBack(t, rec, d, name, &host)
	case opDelete:
		if there {
			return errSince
		}
		if err := a.fetch(t, staged); err != nil {
			return err
		}
		if err := a.returnOriginal(t, &rec.entry); err != nil {
			return err
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
		if rec.OldMode == 0 { // a new folder, which goes as a whole, and keeps its mode inside
			if err := t.makeParents(rel); err != nil {
				return err
			}
			if err := t.makeFolder(rel); err != nil {
				return err
			}
			return chmodAt(d, name, &host, perm(host.Mode|0o700))
		}
		if err := a.unsettle(t, rec); err != nil {
			return err
		}
		return chmodAt(d, name, &host, rec.OldMode) // with its set-id bits: nobody has written it since
	}
	return nil
}

// fetch moves what was replaced from the store to a stage in the root, from which it can be put in place in one step. It is only in one
// of them, so that its absence shows that it was put in place.
func (a *applier) fetch(t *target, staged string) error {
	if t.far == "" {
		return nil
	}
	err := copyOld(a.store, t.stage, staged)
	if isGone(err) {
		return nil // it still is in the stage
	}
	if err != nil {
		return err
	}
	return unlinkAny(a.store, staged)
}

// unfetch moves it back, if it was not put in place.
func (a *applier) unfetch(t *target, rec *record) error {
	var st unix.Stat_t
	if err := fstatat(t.stage, stageName(rec.N), &st); isGone(err) || err == nil && st.Ino == rec.Ino {
		return nil
	}
	return a.collect(t, rec.N)
}

// takeBack exchanges the new file for what it replaced, if it is still the one that was seen.
func (a *applier) takeBack(t *target, rec *record, d int, name string, seen *unix.Stat_t) error {
	staged := stageName(rec.N)
	var before unix.Stat_t // what the host gets
	if rec.Op == opPut {
		if err := unix.Renameat2(d, name, t.stage, staged, unix.RENAME_NOREPLACE); err != nil {
			return err
		}
	} else {
		if err := a.fetch(t, staged); err != nil {
			return err
		}
		if err := fstatat(t.stage, staged, &before); err != nil {
			return err
		}
		if err := unix.Renameat2(d, name, t.stage, staged, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
	}
	var out unix.Stat_t
	err := fstatat(t.stage, staged, &out)
	if err != nil || !sameFile(seen, &out) {
		err = errSince
	} else if typeOf(out.Mode) == Folder {
		err = emptyFolder(t.stage, staged)
	}
	if err != nil {
		if rec.Op == opPut {
			return errors.Join(err, unix.Renameat2(t.stage, staged, d, name, unix.RENAME_NOREPLACE))
		}
		return errors.Join(err, exchangeBack(t.stage, staged, d, name, before.Ino))
	}
	if t.root.File {
		err = a.r.setBase(t.root, d, name)
	}
	return errors.Join(err, a.dropStaged(t, staged))
}

// dropStaged removes what is in the review again, or was put back.
func (a *applier) dropStaged(t *target, staged string) error {
	for _, dir := range []int{t.stage, a.store} {
		if err := unlinkAny(dir, staged); err != nil && !isGone(err) {
			return err
		}
	}
	return nil
}

// unsettle puts an applied change into the review again.
func (a *applier) unsettle(t *target, rec *record) error {
	rel := string(rec.Upper)
	if rel == "" || t.root.File {
		return nil
	}
	if err := a.returnOriginal(t, &rec.entry); err != nil {
		return err
	}
	if rec.isFolder(t) {
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
