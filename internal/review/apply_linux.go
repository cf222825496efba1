package review

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// withFix adds to the error about a full disk what to do.
func withFix(err error) error {
	if !isFull(err) {
		return err
	}
	return fmt.Errorf("%w: each file is the old or the new one, and nothing is lost; make room and repeat the command", err)
}

var errChanged = errors.New("the host's file changed just now; look at the changes again")

// batch is how many changes wait for the disk together.
const batch = 256

// Apply puts chosen changes into effect on the host. Each file is replaced in one step, and is the old or the
// new one whatever happens. What was replaced is kept for Undo until the next Apply.
func (r *Review) Apply(o Options) (*Outcome, error) {
	l := r.lister(o.Protect)
	defer r.closeFolders()
	all, err := l.all()
	if err != nil {
		return nil, err
	}
	out := &Outcome{}
	if err := r.leaveFar(all); err != nil {
		return nil, err
	}
	list := withFolders(all, chosen(all, o.Want))
	if !o.Seen {
		list = l.leaveUnseen(list, out)
	}
	if o.Merge {
		r.mergeConflicts(list, o.Patched)
	}
	jobs := jobsOf(selectable(list, o, out))
	if err := l.dropUnchanged(o.Want); err != nil || len(jobs) == 0 {
		return out, err
	}
	a, err := r.newApplier(out)
	if err != nil {
		return nil, withFix(err)
	}
	a.patched = o.Patched
	err = a.all(jobs)
	return out, withFix(errors.Join(err, a.close()))
}

// leaveUnseen leaves out what a command has changed since a person has looked.
func (l *lister) leaveUnseen(list []*Change, out *Outcome) []*Change {
	seen := l.r.readSeen()
	unseen := map[string]bool{}
	for _, c := range list {
		// A new folder is as new as the last file in it, and answers for nothing.
		if (c.Type != Folder || c.Kind == Mode) && seen.isUnseen(c, l.times.Last) {
			unseen[c.Whole()] = true
		}
	}
	return slices.DeleteFunc(list, func(c *Change) bool {
		if unseen[c.Whole()] {
			out.Unseen = append(out.Unseen, c)
		}
		return unseen[c.Whole()]
	})
}

// withFolders adds the new folders around the chosen files.
func withFolders(all, chosen []*Change) []*Change {
	want := map[*Change]bool{}
	above := map[string]bool{}
	for _, c := range chosen {
		want[c] = true
		for p := path.Dir(c.Abs()); c.Kind != Deleted && p != "/" && !above[p]; p = path.Dir(p) {
			above[p] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(c *Change) bool {
		folder := c.Type == Folder && (c.Kind == Added || c.Kind == Changed)
		return !want[c] && !(folder && above[c.Abs()])
	})
}

// selectable leaves out what must not be applied, and says so in the outcome.
func selectable(list []*Change, o Options, out *Outcome) []*Change {
	left := map[string]*Change{} // of each whole, a part that is left
	var rest []*Change
	for _, c := range list {
		switch {
		case c.NotCarried != "":
			out.NotCarried = append(out.NotCarried, c)
			if c.Unit != "" && c.Protected == "" {
				continue // a git directory does without its sockets
			}
		case c.Protected != "" && (o.Allow == nil || !o.Allow(c.Abs())):
			out.Protected = append(out.Protected, c)
		case c.Conflict != "" && !o.Theirs && !c.merged && o.Patched[c.Abs()].Of == nil:
			out.Conflicts = append(out.Conflicts, c)
		case !sameAsPatched(c, o.Patched):
			out.fail(c, errChanged)
		default:
			rest = append(rest, c)
			continue
		}
		left[c.Whole()] = c
	}
	return slices.DeleteFunc(rest, func(c *Change) bool {
		part := left[c.Whole()]
		switch {
		case part == nil:
			return false
		case c.Unit != "": // a part of a git directory may have been allowed by its own path
			out.Protected = append(out.Protected, c)
		case part.NotCarried != "":
			c.NotCarried = part.Path + " is not carried, which goes with it"
			out.NotCarried = append(out.NotCarried, c)
		case part.Protected != "":
			c.Protected = part.Path + ", which goes with it, is protected"
			out.Protected = append(out.Protected, c)
		default:
			c.Conflict = part.Path + ", which goes with it, has a conflict"
			out.Conflicts = append(out.Conflicts, c)
		}
		return true
	})
}

// sameAsPatched reports whether the host's file is still the one that a text was made from.
func sameAsPatched(c *Change, patched map[string]Patched) bool {
	p, ok := patched[c.Abs()]
	return !ok || c.Kind == Changed && c.Type == File && p.Of.at.lower.Ino == c.at.lower.Ino && p.Of.at.lower.Ctim == c.at.lower.Ctim
}

// syncFile waits until a file is on the disk. Its writing has been started, so many of them cost little more than one.
func syncFile(dir int, name string) error {
	f, err := openFile(dir, name, true)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// A job is one step on the host.
type job struct {
	c    *Change
	at   *place
	path string
	op   op
	e    entry
	err  error
}

// jobsOf puts the steps in an order in which each is possible: folders are opened first, then goes what is in the way, folders come before what is
// in them and go after it. Other files are deleted last, so that a move never has no file.
func jobsOf(list []*Change) []*job {
	var opens, first, middle, last, modes []*job
	for _, c := range list {
		j := &job{c: c, at: c.at, path: c.Path, op: opOf(c)}
		switch {
		case c.by != nil:
			first = append(first, j)
		case c.Kind == Deleted:
			last = append(last, j)
		default:
			middle = append(middle, j)
		}
		if c.old != nil {
			last = append(last, &job{c: c, at: c.old.at, path: c.old.Path, op: opDelete})
		}
		// New folders are open until everything is in them.
		if c.Type == Folder && c.Kind != Deleted && c.Kind != Mode {
			modes = append(modes, &job{c: c, at: c.at, path: c.Path, op: opMode})
		}
		if c.Kind == Mode && c.Type == Folder {
			middle = middle[:len(middle)-1]
			if c.Mode&^c.OldMode&0o300 != 0 { // what is in it could not be changed before
				opens = append(opens, j)
			} else {
				modes = append(modes, j)
			}
		}
	}
	order := func(a, b *job) int { return cmp.Compare(b.path, a.path) }
	slices.SortStableFunc(first, order)
	slices.SortStableFunc(last, order)
	slices.Reverse(modes)
	return slices.Concat(opens, first, middle, last, modes)
}

func opOf(c *Change) op {
	switch {
	case c.Kind == Deleted && c.Type == Folder:
		return opRmdir
	case c.Kind == Deleted:
		return opDelete
	case c.merged:
		return opReplace
	case c.Kind == Mode:
		return opMode
	case c.at.inLower:
		return opReplace
	case c.Type == Folder:
		return opMkdir
	}
	return opPut
}

// A target is a root with its stage: a folder from and to which a file moves in one step.
type target struct {
	*view
	stage int
	// far is the name of a stage in the root itself, because the store is on another file system.
	far string
}

type applier struct {
	r       *Review
	out     *Outcome
	journal *writer
	targets map[*root]*target
	store   int // the folder of the stage in the store
	n       int
	patched map[string]Patched
	whole   bool // nothing is left to recover
}

func (r *Review) newApplier(out *Outcome) (*applier, error) {
	old, err := r.readJournal()
	if err != nil {
		return nil, err
	}
	if err := r.setPending(); err != nil {
		return nil, err
	}
	stages := map[string]string{}
	for _, t := range r.meta.Roots {
		if r.checkRoot(&t) != nil {
			continue // nothing of it is applied
		}
		if far, err := r.isFar(&t); err != nil {
			return nil, err
		} else if far {
			stages[t.Path] = ".cloche-review-" + rand.Text()
		}
	}
	// The journal comes first: without it, what is in the stage means nothing.
	w, err := r.newJournal(old, stages)
	if err != nil {
		return nil, err
	}
	if err := removeAll(r.stageDir()); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return r.openApplier(out, w, stages)
}

// isFar reports whether a file cannot be moved between the store and a root.
func (r *Review) isFar(t *root) (bool, error) {
	var a, b unix.Statx_t
	const mask = unix.STATX_MNT_ID | unix.STATX_INO
	if err := unix.Statx(unix.AT_FDCWD, r.path, 0, mask, &a); err != nil {
		return false, err
	}
	if err := unix.Statx(unix.AT_FDCWD, t.base(), 0, mask, &b); err != nil {
		return false, err
	}
	return a.Mnt_id != b.Mnt_id || a.Dev_major != b.Dev_major || a.Dev_minor != b.Dev_minor, nil
}

func (r *Review) openApplier(out *Outcome, w *writer, stages map[string]string) (*applier, error) {
	a := &applier{r: r, out: out, journal: w, targets: map[*root]*target{}, store: -1}
	if err := unix.Mkdir(r.stageDir(), 0o700); err != nil && err != unix.EEXIST {
		return nil, errors.Join(fmt.Errorf("make %s: %w", r.stageDir(), err), w.close())
	}
	t, err := openTree(r.stageDir())
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	a.store = t.fd
	for i := range r.meta.Roots {
		root := &r.meta.Roots[i]
		if r.checkRoot(root) != nil {
			continue
		}
		v, err := r.view(root)
		if err != nil {
			return nil, errors.Join(err, a.close())
		}
		a.targets[root] = &target{view: v, stage: a.store, far: stages[root.Path]}
	}
	return a, nil
}

// openStage makes and opens the stage of a root when it is needed.
func (t *target) openStage(store int) error {
	if t.far == "" || t.stage != store {
		return nil
	}
	if err := unix.Mkdirat(t.lower.fd, t.far, 0o700); err != nil && err != unix.EEXIST {
		return fmt.Errorf("make a folder in %s: %w", t.root.base(), err)
	}
	fd, err := openDir(t.lower.fd, t.far, false)
	if err != nil {
		return err
	}
	t.stage = fd
	return nil
}

func (a *applier) close() error {
	var errs []error
	for _, t := range a.targets {
		if t.stage != a.store && t.stage >= 0 {
			unix.Close(t.stage)
			_ = unix.Unlinkat(t.lower.fd, t.far, unix.AT_REMOVEDIR) // it stays if something could not be collected
		}
		errs = append(errs, t.prune())
		t.close()
	}
	if a.store >= 0 {
		unix.Close(a.store)
	}
	errs = append(errs, a.journal.flush(true), a.journal.close())
	if a.whole {
		errs = append(errs, os.Remove(a.r.pendingFile()))
	}
	return errors.Join(errs...)
}

func (a *applier) all(jobs []*job) error {
	failed := map[*Change]bool{}
	for part := range slices.Chunk(jobs, batch) {
		if err := a.batch(part, failed); err != nil {
			return err
		}
	}
	a.whole = true
	seen := map[*Change]bool{}
	for _, j := range jobs {
		if !failed[j.c] && !seen[j.c] {
			seen[j.c] = true
			a.out.Applied = append(a.out.Applied, j.c)
		}
	}
	return nil
}

// batch applies some changes: the new files are on the disk before the intents, and the intents before the first change.
func (a *applier) batch(jobs []*job, failed map[*Change]bool) error {
	fail := func(j *job, err error) {
		j.err = err
		if !failed[j.c] {
			failed[j.c] = true
			a.out.fail(j.c, err)
		}
	}
	stages := map[int]bool{}
	for _, j := range jobs {
		if failed[j.c] { // the other half of a move, or the mode of a folder that is not there
			j.err = errChanged
			continue
		}
		if err := a.prepare(j); err != nil {
			if isFull(err) {
				return err
			}
			fail(j, err)
			continue
		}
		a.journal.add(j.e)
		stages[a.targets[j.at.root].stage] = true
	}
	for _, j := range jobs {
		if j.err == nil && j.e.Ino != 0 && j.c.Type == File {
			if err := syncFile(a.targets[j.at.root].stage, stageName(j.e.N)); err != nil {
				return err
			}
		}
	}
	for fd := range stages {
		if err := unix.Fsync(fd); err != nil {
			return err
		}
	}
	if err := a.journal.flush(true); err != nil {
		return err
	}
	for _, j := range jobs {
		if j.err != nil {
			continue
		}
		t := a.targets[j.at.root]
		if failed[j.c] {
			j.err = errChanged
			continue
		}
		if err := a.change(t, j); err != nil {
			fail(j, err)
			if j.e.Ino != 0 {
				a.unstage(t, j)
			}
			continue
		}
		a.journal.add(a.doneEntry(t, &j.e))
	}
	if err := a.journal.flush(len(a.far()) > 0); err != nil {
		return err
	}
	for _, j := range jobs {
		if j.err != nil {
			continue
		}
		if err := a.settle(a.targets[j.at.root], &j.e); err != nil {
			return fmt.Errorf("%s was applied, but cannot be taken out of the review: %w", j.c.Abs(), err)
		}
	}
	a.journal.add(entry{Step: stepSettled, N: a.n})
	return a.journal.flush(false)
}

// leaveFar leaves out what cannot be applied because the store is on another file system. The new contents of protected files would
// wait in the root, where another command could change what a person has seen and allowed. Pipes of the host cannot be copied into the store.
func (r *Review) leaveFar(list []*Change) error {
	for i := range r.meta.Roots {
		t := &r.meta.Roots[i]
		if r.checkRoot(t) != nil {
			continue // nothing of it is applied
		}
		far, err := r.isFar(t)
		if err != nil {
			return err
		}
		for _, c := range list {
			if !far || c.NotCarried != "" || c.at.root != t {
				continue
			}
			if c.Protected != "" {
				c.NotCarried = "protected, and cloche's state folder is on another file system: copy it yourself"
			} else if was := typeOf(c.at.lower.Mode); c.at.inLower && (was == Pipe || was == Socket || was == Device) {
				c.NotCarried = "the host's " + was + " cannot be kept for an undo, as cloche's state folder is on another file system: delete it yourself"
			}
		}
	}
	return nil
}

func (a *applier) far() (list []*target) {
	for _, t := range a.targets {
		if t.far != "" {
			list = append(list, t)
		}
	}
	return list
}

func stageName(n int) string { return strconv.Itoa(n) }
func upperName(n int) string { return strconv.Itoa(n) + ".review" }

// prepare makes the new file in the stage, and the intent.
func (a *applier) prepare(j *job) error {
	t := a.targets[j.at.root]
	if err := t.openStage(a.store); err != nil {
		return err
	}
	a.n++
	j.e = entry{Step: stepIntent, N: a.n, Op: j.op, Root: t.root.Path, Path: []byte(j.path), Mode: perm(j.at.upper.Mode), OldMode: j.at.lower.Mode & 0o7777}
	if j.op == opMode && j.c.Kind != Mode {
		j.e.OldMode = 0 // a new folder
	}
	if j.op == opReplace || j.op == opDelete {
		j.e.HostIno = j.at.lower.Ino
	}
	if j.at.inUpper {
		j.e.Upper = []byte(j.at.upperPath)
		j.e.UpperIno = j.at.upper.Ino
	}
	if j.op != opPut && j.op != opReplace {
		return nil
	}
	name := stageName(a.n)
	d, from, err := t.upper.parent(j.at.upperPath)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	text, mode, patched, err := a.textFor(j.c)
	if err != nil {
		return err
	}
	part := patched && !j.c.merged
	if part && j.c.Conflict == "" {
		if err := a.r.notePatched(t.root, j.at.upperPath, text, mode); err != nil {
			return err
		}
	}
	if patched {
		err = writePatched(d, from, t.stage, name, text)
	} else {
		err = copyEntry(d, from, t.stage, name, true)
	}
	if err == nil && j.at.inLower && j.c.Was == "" {
		err = copyOwner(t.stage, name, &j.at.lower) // the host's file keeps its owner
		if err == nil && j.c.Type == File {
			err = chmodNew(t.stage, name, unix.S_IFREG|mode) // which chown may have changed
		}
	}
	var st unix.Stat_t
	if err == nil {
		err = fstatat(t.stage, name, &st)
	}
	if err != nil {
		_ = unlinkAny(t.stage, name)
		return err
	}
	j.e.Ino = st.Ino
	if part {
		j.e.Upper = nil // the rest of the change stays in the review
	}
	return nil
}

// unstage removes a new file that was not put in place.
func (a *applier) unstage(t *target, j *job) {
	var st unix.Stat_t
	if fstatat(t.stage, stageName(j.e.N), &st) == nil && st.Ino == j.e.Ino {
		_ = unlinkAny(t.stage, stageName(j.e.N))
	}
}

// change makes one change on the host. It looks at what it is about to replace, replaces it, and looks
// at what came out; if that is another file, it takes the step back.
func (a *applier) change(t *target, j *job) error {
	d, name, err := t.lower.parent(j.path)
	if err != nil {
		return j.where(err)
	}
	defer unix.Close(d)
	staged := stageName(j.e.N)
	switch j.op {
	case opPut:
		err := unix.Renameat2(t.stage, staged, d, name, unix.RENAME_NOREPLACE)
		if err == unix.EEXIST {
			return errChanged
		}
		return j.where(err)
	case opMkdir:
		err := unix.Mkdirat(d, name, 0o700)
		if err == unix.EEXIST {
			return errChanged
		}
		return j.where(err)
	}
	var before, after unix.Stat_t
	if err := fstatat(d, name, &before); err != nil {
		return j.where(err)
	}
	if j.op == opMode && j.c.Kind != Mode { // a folder that this apply has made
		if typeOf(before.Mode) != Folder {
			return errChanged
		}
		return j.where(chmodAt(d, name, &before, perm(j.at.upper.Mode)))
	}
	// The ctime of a folder says nothing: this apply has changed what is in it.
	was := &j.at.lower
	if before.Ino != was.Ino || typeOf(before.Mode) != typeOf(was.Mode) || typeOf(was.Mode) != Folder && before.Ctim != was.Ctim {
		return errChanged
	}
	switch j.op {
	case opRmdir:
		err := unix.Unlinkat(d, name, unix.AT_REMOVEDIR)
		if err == unix.ENOTEMPTY || err == unix.EEXIST {
			return errors.New("the host's folder is not empty: it has files that are not part of this apply")
		}
		return j.where(err)
	case opMode:
		return j.where(chmodAt(d, name, &before, perm(j.at.upper.Mode)))
	case opDelete:
		if err := unix.Renameat2(d, name, t.stage, staged, unix.RENAME_NOREPLACE); err != nil {
			return j.where(err)
		}
		if err := fstatat(t.stage, staged, &after); err != nil || !sameFile(&before, &after) {
			return errors.Join(errChanged, unix.Renameat2(t.stage, staged, d, name, unix.RENAME_NOREPLACE))
		}
		return nil
	}
	if err := unix.Renameat2(t.stage, staged, d, name, unix.RENAME_EXCHANGE); err != nil {
		return j.where(err)
	}
	err = fstatat(t.stage, staged, &after)
	if err != nil || !sameFile(&before, &after) {
		err = errChanged
	} else if typeOf(after.Mode) == Folder {
		err = emptyFolder(t.stage, staged)
	}
	if err != nil {
		return errors.Join(err, exchangeBack(t.stage, staged, d, name, j.e.Ino))
	}
	return nil
}

// exchangeBack gives the host back what an exchange has moved to the stage. put is the file that the exchange has put
// there. If the host has replaced that one meanwhile, its newest file stays there.
func exchangeBack(stage int, staged string, d int, name string, put uint64) error {
	for {
		var back, out unix.Stat_t
		if err := fstatat(stage, staged, &back); err != nil {
			return err
		}
		if err := unix.Renameat2(stage, staged, d, name, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
		if err := fstatat(stage, staged, &out); err != nil || out.Ino == put {
			return err
		}
		put = back.Ino // what came out now is newer than this one
	}
}

// where explains an error of a step.
func (j *job) where(err error) error {
	switch err {
	case nil:
		return nil
	case unix.ENOENT:
		return errors.New("the host has no such file, or no folder for it")
	case unix.ELOOP, unix.ENOTDIR:
		return errors.New("the host has a link or a file where a folder should be, and no link is followed")
	case unix.EINVAL:
		return errors.New("this file system cannot exchange two files in one step; use: cloche review diff | git apply")
	case unix.EXDEV:
		return errors.New("a mount is in the way; use: cloche review diff | git apply")
	}
	return fmt.Errorf("%s: %w", j.op, err)
}

// sameFile compares what a rename does not touch.
func sameFile(a, b *unix.Stat_t) bool {
	return a.Ino == b.Ino && a.Mode == b.Mode && (typeOf(a.Mode) == Folder || a.Mtim == b.Mtim && a.Size == b.Size)
}

func emptyFolder(dir int, name string) error {
	fd, err := openDir(dir, name, false)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	names, err := readNames(fd)
	if err == nil && len(names) > 0 {
		err = errors.New("the host's folder is not empty: it has files that are not part of this apply")
	}
	return err
}

// chmodAt changes the mode of a file that was just seen. Set-id bits of the host's stay on folders and go from files.
func chmodAt(dir int, name string, seen *unix.Stat_t, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Ino != seen.Ino || typeOf(st.Mode) != File && typeOf(st.Mode) != Folder {
		return errChanged
	}
	if typeOf(st.Mode) == Folder {
		mode |= st.Mode & (unix.S_ISUID | unix.S_ISGID)
	}
	return unix.Chmod(procName(fd), mode)
}

// doneEntry is the line for a change that was made.
func (a *applier) doneEntry(t *target, e *entry) entry {
	done := entry{Step: stepDone, N: e.N}
	done.Ctime, done.DirCtime = t.ctimes(string(e.Path))
	return done
}

// ctimes are those of a file of the host and of its folder; 0 if it is gone.
func (t *target) ctimes(rel string) (file, dir int64) {
	d, name, err := t.lower.parent(rel)
	if err != nil {
		return 0, 0
	}
	defer unix.Close(d)
	var st unix.Stat_t
	if fstatat(d, name, &st) == nil {
		file = st.Ctim.Nano()
	}
	if unix.Fstat(d, &st) == nil {
		dir = st.Ctim.Nano()
	}
	return file, dir
}

// settle takes an applied change out of the review, and what it replaced into the store. It can be repeated.
func (a *applier) settle(t *target, e *entry) error {
	if err := a.collect(t, e.N); err != nil {
		return err
	}
	if len(e.Upper) == 0 {
		return nil
	}
	rel := string(e.Upper)
	if t.root.File {
		return a.settleFile(t)
	}
	if err := t.openWay(path.Join(rel, "x")); err != nil {
		return err
	}
	if e.Op == opReplace || e.Op == opDelete || e.Op == opMode {
		if err := a.takeOriginal(t, e); err != nil {
			return err
		}
	}
	if e.Op == opMkdir || e.Op == opMode && e.Mode != 0 && a.isFolder(t, rel) {
		t.touched[rel] = true
		return t.expose(rel)
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
	t.touched[path.Dir(rel)] = true
	var st unix.Stat_t
	if err := fstatat(d, name, &st); err != nil {
		if isGone(err) {
			return nil
		}
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR: // a file became a folder, and what is in it follows
		t.touched[rel] = true
		return t.expose(rel)
	case st.Ino != e.UpperIno:
		return nil
	case isWhiteout(&st):
		return unix.Unlinkat(d, name, 0)
	}
	return unix.Renameat2(d, name, a.store, upperName(e.N), 0)
}

func (a *applier) isFolder(t *target, rel string) bool {
	st, err := t.upper.stat(rel)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// settleFile notes that the host has what the command made of a root that is a file.
func (a *applier) settleFile(t *target) error {
	return a.r.noteBase(t.root)
}

// noteBase notes what a root that is a file has now.
func (r *Review) noteBase(t *root) error {
	upper := r.layer(*t).Upper
	dir, err := openTree(filepath.Dir(upper))
	if err != nil {
		return err
	}
	defer dir.close()
	return r.setBase(t, dir.fd, filepath.Base(upper))
}

func (r *Review) setBase(t *root, dir int, name string) error {
	var st unix.Stat_t
	if err := fstatat(dir, name, &st); err != nil {
		return err
	}
	sum, err := hashFile(dir, name, true)
	if err != nil {
		return err
	}
	t.Base, t.Size = sum, st.Size
	return r.writeMeta()
}

// collect copies what was replaced from a stage in the root into the store.
func (a *applier) collect(t *target, n int) error {
	if t.far == "" {
		return nil
	}
	name := stageName(n)
	var st unix.Stat_t
	if err := fstatat(t.stage, name, &st); isGone(err) {
		return nil
	} else if err != nil {
		return err
	}
	if err := copyOld(t.stage, a.store, name); err != nil {
		return err
	}
	return unlinkAny(t.stage, name)
}

// writePatched writes a text as a new file, which otherwise is like another one.
func writePatched(from int, name string, to int, newName string, text []byte) error {
	if err := copyEntry(from, name, to, newName, true); err != nil {
		return err
	}
	const flags = unix.O_WRONLY | unix.O_TRUNC | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(to, newName, flags, 0)
	if err == unix.EACCES {
		fd, err = openAnyway(to, newName, flags)
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), newName)
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
