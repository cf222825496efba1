package review

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/ownfile"
	"github.com/cloche-dev/cloche/internal/pathx"
)

// Begin creates the review of a workspace with this name, or continues it, and locks it until Close.
// The workspace and the roots are absolute real paths. A root that the review does not have
// is added; one that lies in another root is part of that root's layer.
//
// The error is ErrInUse if another process has the review open, or a *RootError.
func (s Store) Begin(workspace, name string, roots []string) (*Review, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	r := &Review{path: s.folder(workspace, name)}
	if err := os.MkdirAll(r.path, 0o700); err != nil {
		return nil, err
	}
	if err := r.takeLock(); err != nil {
		return nil, err
	}
	if err := r.begin(workspace, name, roots); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Resume opens an existing review and locks it until Close. It finishes what an apply that was killed has
// left. The error is ErrNone or ErrInUse.
func (s Store) Resume(workspace, name string) (*Review, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	r := &Review{path: s.folder(workspace, name)}
	if _, err := os.Lstat(r.path); errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err := r.takeLock(); err != nil {
		return nil, err
	}
	var err error
	r.meta, err = readMeta(r.path)
	switch {
	case err == nil:
		err = r.repair()
	case errors.Is(err, fs.ErrNotExist): // its discard was killed
		err = cmp.Or(removeAll(r.path), ErrNone)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	_ = r.keep(true) // on a full disk, too, changes can be looked at and discarded
	return r, nil
}

// Look opens an existing review to read it. It may be in use, and then what is read may be changing.
func (s Store) Look(workspace, name string) (*Review, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	return look(s.folder(workspace, name))
}

func look(dir string) (*Review, error) {
	r := &Review{path: dir}
	var err error
	r.meta, err = readMeta(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	return r, err
}

// Close unlocks the review. The sandbox that shows it has ended.
func (r *Review) Close() error {
	if r.lock == nil {
		return nil
	}
	// overlayfs makes a folder that its owner may not enter. With it, rm -rf of the store would fail. After a kill the next Close does this.
	for _, l := range r.Layers() {
		if !l.IsFile() {
			_ = os.Chmod(filepath.Join(l.Work, "work"), 0o700)
		}
	}
	if r.synced != nil {
		<-r.synced
	}
	r.keeping.Lock()
	r.closed = true
	r.keeping.Unlock()
	return r.lock.Close()
}

// takeLock locks the review. A review that is discarded meanwhile has another lock file, or none.
func (r *Review) takeLock() error {
	name := filepath.Join(r.path, "lock")
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			err = os.MkdirAll(r.path, 0o700)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		if err := lock(int(f.Fd())); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return ErrInUse
			}
			return fmt.Errorf("lock %s: %w", name, err)
		}
		ours, err := f.Stat()
		if err != nil {
			f.Close()
			return err
		}
		if now, err := os.Lstat(name); err == nil && os.SameFile(ours, now) {
			r.lock = f
			return nil
		}
		f.Close()
	}
}

// lock takes a lock, or fails with EWOULDBLOCK. Those that only check whether it is taken share it for a moment (isLocked), and are waited for.
func lock(fd int) error {
	for {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK {
			return err
		}
		if err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); err != nil {
			return err // it is taken
		}
		if err := unix.Flock(fd, unix.LOCK_UN); err != nil {
			return err
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func (r *Review) begin(workspace, name string, roots []string) error {
	var err error
	r.meta, err = readMeta(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := r.removeLeftovers(); err != nil {
			return err
		}
		r.meta = meta{Version: metaVersion, Name: name, Workspace: workspace, Began: time.Now()}
	case err != nil:
		return err
	}
	if err == nil {
		if err := r.repair(); err != nil {
			return err
		}
	}
	known := len(r.meta.Roots)
	for _, path := range outermost(roots) {
		if err := r.addRoot(path); err != nil {
			return err
		}
	}
	for i := range r.meta.Roots {
		if err := r.checkRoot(&r.meta.Roots[i]); err != nil {
			return err
		}
	}
	kept := r.keep(true) == nil // without originals, conflicts cannot be merged
	first, err2 := r.noteStart(kept)
	if err2 != nil {
		return err2
	}
	switch {
	case err != nil: // a new review
		return r.writeFirstMeta()
	case len(r.meta.Roots) > known || first:
		return r.writeMeta()
	}
	return nil
}

// writeFirstMeta writes the record of a new review, which survives a kill at once. That it survives a loss of power takes the
// disk as long as a start of cloche, so Close waits for that and not the command: what the command has written by then would be lost as well.
func (r *Review) writeFirstMeta() error {
	text, err := json.Marshal(r.meta)
	if err != nil {
		return err
	}
	if err := ownfile.WriteCache(r.metaFile(), text); err != nil {
		return err
	}
	r.synced = make(chan struct{})
	go func() {
		defer close(r.synced)
		for _, path := range []string{r.metaFile(), r.path} {
			if f, err := os.Open(path); err == nil {
				_ = f.Sync() // the file is there for all but a loss of power
				f.Close()
			}
		}
	}()
	return nil
}

// repair finishes what a command that was killed has left.
func (r *Review) repair() error {
	if err := r.removeUnusedLayers(); err != nil {
		return err
	}
	if err := r.remakeLayers(); err != nil {
		return withFix(err)
	}
	for _, l := range r.Layers() {
		if err := openUpper(l); err != nil {
			return err
		}
	}
	return r.recover()
}

// openUpper opens an upper folder that a command has closed to its user. For good: the mode of a root is no change.
func openUpper(l Layer) error {
	info, err := os.Lstat(l.Upper)
	if err != nil || l.IsFile() || info.Mode()&0o700 == 0o700 {
		return err
	}
	return os.Chmod(l.Upper, 0o700)
}

// removeLeftovers removes what a Begin or a discard that was killed has left of a review. The lock stays.
func (r *Review) removeLeftovers() error {
	names, err := os.ReadDir(r.path)
	if err != nil {
		return err
	}
	for _, n := range names {
		if n.Name() == "lock" {
			continue
		}
		if err := removeAll(filepath.Join(r.path, n.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeUnusedLayers removes layers that belong to no root.
func (r *Review) removeUnusedLayers() error {
	names, err := os.ReadDir(filepath.Join(r.path, "layers"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, n := range names {
		used := slices.ContainsFunc(r.meta.Roots, func(t root) bool { return strconv.Itoa(t.Layer) == n.Name() })
		if used {
			continue
		}
		if err := removeAll(filepath.Join(r.path, "layers", n.Name())); err != nil {
			return err
		}
	}
	return nil
}

// outermost leaves out paths that lie in another one.
func outermost(paths []string) []string {
	var out []string
	for _, p := range paths {
		inner := slices.ContainsFunc(paths, func(o string) bool { return o != p && pathx.Within(o, p) })
		if !inner && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func (r *Review) addRoot(path string) error {
	for _, t := range r.meta.Roots {
		if !t.File && pathx.Within(t.Path, path) || t.Path == path {
			return nil
		}
		if pathx.Within(path, t.Path) {
			return &RootError{path, "the review already has " + t.Path + ", which lies in it", "apply or discard the review first, or use another name"}
		}
	}
	t := root{Path: path}
	if err := r.makeLayer(&t); err != nil {
		return err
	}
	r.meta.Roots = append(r.meta.Roots, t)
	return nil
}

// makeLayer makes new folders for a root, and notes what the root is.
func (r *Review) makeLayer(t *root) error {
	var st unix.Stat_t
	if err := unix.Lstat(t.Path, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: t.Path, Err: err}
	}
	t.Dev, t.Ino = st.Dev, st.Ino
	t.Boot, _ = clockNow()
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFREG:
		t.File = true
	default:
		return &RootError{t.Path, "it is neither a folder nor a file", "take it out of the writable paths"}
	}
	for _, other := range r.meta.Roots {
		t.Layer = max(t.Layer, other.Layer+1)
	}
	l := r.layer(*t)
	// A command that was killed here has left a layer that is in no list.
	if err := removeAll(filepath.Dir(l.Upper)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.Upper), 0o700); err != nil {
		return err
	}
	if !t.File {
		return makeUpper(l, &st)
	}
	var err error
	t.Base, t.Size, err = copyRoot(t.Path, l.Upper, &st)
	return err
}

// makeUpper makes the two folders. Inside, the root has the mode, the owner and the times of the upper folder.
func makeUpper(l Layer, st *unix.Stat_t) error {
	if err := os.Mkdir(l.Work, 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(l.Upper, 0o700); err != nil {
		return err
	}
	if err := os.Lchown(l.Upper, int(st.Uid), int(st.Gid)); err != nil && os.Geteuid() == 0 {
		return err
	}
	if err := unix.Fchmodat(unix.AT_FDCWD, l.Upper, st.Mode&0o7777, 0); err != nil {
		return &fs.PathError{Op: "chmod", Path: l.Upper, Err: err}
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, l.Upper, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// copyRoot copies a root that is a file, and returns the sum and size of what was copied.
func copyRoot(path, upper string, st *unix.Stat_t) (base string, size int64, err error) {
	fd, err := openReal(path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return "", 0, err
	}
	in := os.NewFile(uintptr(fd), path)
	defer in.Close()
	out, err := os.OpenFile(upper, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", 0, err
	}
	defer out.Close()
	sum := sha256.New()
	if size, err = io.Copy(io.MultiWriter(out, sum), in); err != nil {
		return "", 0, err
	}
	if os.Geteuid() == 0 {
		if err := out.Chown(int(st.Uid), int(st.Gid)); err != nil {
			return "", 0, err
		}
	}
	if err := unix.Fchmod(int(out.Fd()), st.Mode&0o777); err != nil {
		return "", 0, err
	}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, upper, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(sum.Sum(nil)), size, out.Sync()
}

// checkRoot reports whether a root is still what it was, since overlayfs must not get another lower folder.
func (r *Review) checkRoot(t *root) error {
	var st unix.Stat_t
	if err := unix.Lstat(t.Path, &st); err != nil {
		return r.changedRoot(t, "it cannot be found any more: "+err.Error())
	}
	// A file is often replaced by a new one.
	if !t.File && !t.is(&st) || t.File != (st.Mode&unix.S_IFMT == unix.S_IFREG) {
		return r.replaced(t)
	}
	return nil
}

// is reports whether a folder is the root. The numbers of devices are other ones after a reboot.
func (t *root) is(st *unix.Stat_t) bool {
	boot, _ := clockNow()
	return st.Ino == t.Ino && (st.Dev == t.Dev || boot != t.Boot)
}

func (r *Review) replaced(t *root) error {
	return r.changedRoot(t, "it was replaced by another one since the review began")
}

func (r *Review) changedRoot(t *root, reason string) error {
	return &RootError{t.Path, reason, "put it back, or drop what was changed in it: cloche review discard --name " + r.meta.Name + " PATH"}
}

// noteStart notes the start of a command, and reports whether it is the first of a root. All files that were changed before
// this call have an older ctime, and all that are changed after it a newer one: it waits for the tick of the clock between them.
//
// kept: there are originals of all files that earlier commands have changed. Otherwise the start does not count: the command may
// replace what an earlier one made, which then looks as if it had begun with the host's file of now.
func (r *Review) noteStart(kept bool) (isFirst bool, err error) {
	first := make([]int64, len(r.meta.Roots))
	for i := range first {
		if first[i], err = r.stamp(&r.meta.Roots[i]); err != nil {
			return false, err
		}
	}
	times := r.readTimes()
	for i := range first {
		t := &r.meta.Roots[i]
		now, err := r.stampAfter(t, first[i])
		if err != nil {
			return false, err
		}
		times.Last = max(times.Last+1, now)
		if t.Start == 0 {
			t.Start, isFirst = now, true
		}
		if !kept {
			continue
		}
		starts := times.Starts[t.Path]
		starts = append(starts, now)
		times.Starts[t.Path] = starts[max(0, len(starts)-maxStarts):]
	}
	if boot, clock := clockNow(); boot != times.Boot || clock > times.Clock {
		times.Boot, times.Clock = boot, clock
	}
	return isFirst, r.writeTimes(times)
}

// stampAfter is the first stamp that is not the given one. A clock that stands still is not waited for.
func (r *Review) stampAfter(t *root, first int64) (int64, error) {
	for range 100 {
		if now, err := r.stamp(t); err != nil || now != first {
			return now, err
		}
		time.Sleep(time.Millisecond)
	}
	return first, nil
}

// stamp is now, as the file system of the root writes it into ctime. No name is made. Where it
// cannot be made there, it is that of the store.
func (r *Review) stamp(t *root) (int64, error) {
	dir := t.Path
	if t.File {
		dir = filepath.Dir(dir)
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		fd, err = unix.Open(filepath.Join(r.path, "stamp"), unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	}
	if err != nil {
		return 0, fmt.Errorf("make a file in %s: %w", r.path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	// A second ctime, of a file whose first was read, is more exact than a tick of the clock since Linux 6.13.
	for range 2 {
		if err := unix.Fchmod(fd, 0o600); err != nil { // sets ctime, also of a file that was there
			return 0, err
		}
		if err := unix.Fstat(fd, &st); err != nil {
			return 0, err
		}
	}
	return st.Ctim.Nano(), nil
}

// clockNow returns the boot and how far the wall clock is ahead of the time since then.
func clockNow() (boot string, ahead int64) {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	var wall, up unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &wall)
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &up)
	return strings.TrimSpace(string(text)), wall.Nano() - up.Nano()
}
