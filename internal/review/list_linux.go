package review

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A place is where a change was found, and what was there.
type place struct {
	root         *root
	upperPath    string // below the upper tree; another name than Path if the root is a file
	upper, lower unix.Stat_t
	inUpper      bool // there is an entry in the upper folder, which may be a whiteout
	inLower      bool
	// changed is the ctime of the entry, or of the folder that hides what the host has.
	changed int64
}

// List returns the changes in the order of their paths, root by root. It reads the
// upper folders and the host's files, and writes neither.
func (r *Review) List(want Filter, protect Protect) ([]*Change, error) {
	l := r.lister(protect)
	defer r.closeFolders()
	all, err := l.all()
	return chosen(all, want), err
}

func (r *Review) lister(protect Protect) *lister {
	l := &lister{r: r, protect: protect, times: r.readTimes()}
	if boot, clock := clockNow(); boot == l.times.Boot {
		l.setBack = max(0, l.times.Clock-clock)
	}
	return l
}

func (l *lister) all() ([]*Change, error) {
	var err error
	if l.ours, err = l.r.readOurs(); err != nil {
		return nil, err
	}
	if l.kept, err = l.r.originalNames(); err != nil {
		return nil, err
	}
	var all []*Change
	for i := range l.r.meta.Roots {
		l.root, l.changes = &l.r.meta.Roots[i], nil
		if err := l.r.checkRoot(l.root); err != nil {
			all = append(all, lostRoot(l.root, err))
			continue
		}
		if err := l.list(); err != nil {
			return nil, err
		}
		if len(all)+len(l.changes) > maxChanges {
			return nil, ErrTooMany
		}
		all = append(all, l.changes...)
	}
	return all, nil
}

// lostRoot stands for everything below a root that is gone, or another one. The changes of the other roots do not depend on it.
func lostRoot(t *root, err error) *Change {
	c := &Change{Root: filepath.Dir(t.Path), Kind: Changed, Type: Folder, NotCarried: err.Error(), at: &place{root: t}}
	if t.File {
		c.Type = File
	}
	c.setPath(filepath.Base(t.Path))
	return c
}

// isLostRoot reports whether a change is one of lostRoot.
func (c *Change) isLostRoot() bool { return c.at.upperPath == "" }

// dropUnchanged takes the chosen files that were only touched out of the upper folders.
func (l *lister) dropUnchanged(want Filter) error {
	views := map[*root]*view{}
	for _, c := range l.unchanged {
		if want != nil && !want(c.Abs()) {
			continue
		}
		v := views[c.at.root]
		if v == nil {
			var err error
			if v, err = l.r.view(c.at.root); err != nil {
				return err
			}
			defer v.close()
			views[c.at.root] = v
		}
		if err := v.remove(c.at.upperPath, false); err != nil {
			return err
		}
	}
	for _, v := range views {
		if err := v.prune(); err != nil {
			return err
		}
	}
	return nil
}

// chosen returns the changes that a filter wants. A move, a git directory, and a folder that
// became a file, are wanted as a whole.
func chosen(all []*Change, want Filter) []*Change {
	if want == nil {
		return all
	}
	wanted := map[string]bool{}
	for _, c := range all {
		if want(c.Abs()) || c.From != "" && want(path.Join(c.Root, c.From)) {
			wanted[c.Whole()] = true
		}
	}
	var out []*Change
	for _, c := range all {
		if wanted[c.Whole()] {
			out = append(out, c)
		}
	}
	return out
}

func chmodFolder(dir int, name string, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod(procName(fd), mode)
}

type lister struct {
	r       *Review
	root    *root
	protect Protect
	ours    map[string]own
	times   times
	kept    map[string]bool // the originals
	setBack int64           // by how much the wall clock was set back since
	changes []*Change
	// unchanged are files that were only touched. They hide later changes of the host.
	unchanged []*Change
	upper     tree
	lower     tree
	hashed    int64 // how much was read to find moves
}

func (l *lister) list() error {
	var err error
	if l.upper, l.lower, err = l.r.trees(l.root); err != nil {
		return err
	}
	defer l.upper.close()
	defer l.lower.close()
	if l.root.File {
		return l.listFile()
	}
	if err := l.dir(dir{upper: l.upper.fd, lower: l.lower.fd}); err != nil {
		return err
	}
	l.findMoves()
	l.markUnits()
	return nil
}

// trees opens the upper folder of a root and the root. For a file these are the folders around it.
func (r *Review) trees(t *root) (upper, lower tree, err error) {
	u := r.layer(*t).Upper
	if t.File {
		u = filepath.Dir(u)
	}
	if upper, err = openTree(u); err != nil {
		return upper, lower, err
	}
	if lower, err = r.openRoot(t); err != nil {
		upper.close()
	}
	return upper, lower, err
}

// openRoot opens a root, or the folder around a root that is a file. The path was a real one when the root was added: a
// link in it, or another folder at its end, was put there since.
func (r *Review) openRoot(t *root) (tree, error) {
	fd, err := openReal(t.base(), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return tree{-1}, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && !t.File && !t.is(&st) {
		err = r.replaced(t)
	}
	if err != nil {
		unix.Close(fd)
		return tree{-1}, err
	}
	return tree{fd}, nil
}

// base is the path that the trees of a root begin at.
func (t *root) base() string {
	if t.File {
		return filepath.Dir(t.Path)
	}
	return t.Path
}

// A dir is a folder of the upper tree while it is listed.
type dir struct {
	upper, lower int // lower is -1 if the host has no such folder
	rel          string
	depth        int
	// opaque: the command sees nothing of the host's folder.
	opaque bool
	// replaced: the host has a file in the place of the folder, or of one above it.
	replaced bool
	// blocked says why the host's folder cannot be read.
	blocked string
	// changed is the ctime of the folder.
	changed int64
}

func (l *lister) dir(d dir) error {
	names, err := readNames(d.upper)
	if err != nil {
		return fmt.Errorf("list %s in the changes of %s: %w", d.rel, l.root.Path, err)
	}
	all := names
	if d.opaque && d.lower >= 0 {
		below, err := readNames(d.lower)
		if err != nil {
			return fmt.Errorf("list %s: %w", path.Join(l.root.Path, d.rel), err)
		}
		all = slices.Compact(slices.Sorted(slices.Values(slices.Concat(names, below))))
	}
	for _, name := range all {
		if _, found := slices.BinarySearch(names, name); found {
			err = l.name(&d, name)
		} else {
			err = l.deleted(&d, name, place{root: l.root})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// name lists one name of an upper folder, and what is below it.
func (l *lister) name(d *dir, name string) error {
	at := place{root: l.root, upperPath: path.Join(d.rel, name), inUpper: true}
	if err := fstatat(d.upper, name, &at.upper); err != nil {
		if isGone(err) {
			return nil // a command runs
		}
		return err
	}
	at.changed = at.upper.Ctim.Nano()
	if d.lower >= 0 {
		at.inLower = fstatat(d.lower, name, &at.lower) == nil
	}
	if isWhiteout(&at.upper) {
		if !at.inLower {
			return nil // the host has deleted it, too
		}
		return l.deleted(d, name, at)
	}
	c := &Change{Root: l.root.base(), Type: typeOf(at.upper.Mode), at: &at}
	c.setPath(at.upperPath)
	if err := l.compare(d, name, c); err != nil {
		return err
	}
	if c.Kind != "" {
		l.judge(d, name, c)
		if err := l.add(c); err != nil {
			return err
		}
	}
	if c.Type != Folder {
		if c.Was == Folder {
			from := len(l.changes)
			if err := l.replacedFolder(d, name, &at); err != nil {
				return err
			}
			for _, below := range l.changes[from:] {
				below.by = c
			}
		}
		if c.Kind == "" && (c.Type == File || c.Type == Link) {
			l.unchanged = append(l.unchanged, c)
		}
		return nil
	}
	if d.depth == maxDepth || len(c.Path) > maxPath {
		if c.Kind == "" {
			c.Kind = Changed
			if err := l.add(c); err != nil {
				return err
			}
		}
		c.NotCarried = "it is too deep; what is below it is not listed"
		return nil
	}
	return l.into(d, name, &at)
}

// into lists a folder that is in the upper tree. A command can forbid its own user to look into
// one; if the review is locked, that is lifted until closeFolders.
func (l *lister) into(d *dir, name string, at *place) error {
	if l.r.lock != nil {
		if err := l.r.openFolder(l.root, at.upperPath, d.upper, name, at.upper.Mode); err != nil {
			return err
		}
	}
	upper, err := openDir(d.upper, name, false)
	if isGone(err) {
		return nil
	}
	if err == unix.EACCES {
		c := &Change{Root: l.root.base(), Kind: Changed, Type: Folder, NotCarried: "it cannot be read while a command of the review runs", at: at}
		c.setPath(at.upperPath)
		return l.add(c)
	}
	if err != nil {
		return fmt.Errorf("open %s in the changes of %s: %w", at.upperPath, l.root.Path, err)
	}
	defer unix.Close(upper)
	below := dir{upper: upper, lower: -1, rel: at.upperPath, depth: d.depth + 1, blocked: d.blocked, changed: at.changed}
	below.replaced = d.replaced || at.inLower && typeOf(at.lower.Mode) != Folder
	below.opaque = d.opaque || isOpaque(d.upper, name)
	if at.inLower && typeOf(at.lower.Mode) == Folder {
		lower, err := openDir(d.lower, name, false)
		if err == nil {
			defer unix.Close(lower)
			below.lower = lower
		} else if !isGone(err) {
			below.blocked = "the host's folder cannot be read: " + err.Error()
		}
	}
	return l.dir(below)
}

// compare finds out what kind of change a name is; none leaves the kind empty.
func (l *lister) compare(d *dir, name string, c *Change) error {
	at := c.at
	c.Size, c.Mode = at.upper.Size, perm(at.upper.Mode)
	if c.Type == Folder {
		c.Size = 0
	}
	if !at.inLower {
		c.Kind = Added
		return nil
	}
	was := typeOf(at.lower.Mode)
	c.OldSize, c.OldMode = at.lower.Size, perm(at.lower.Mode)
	if was == Folder {
		c.OldSize = 0
	}
	same := true
	switch {
	case was != c.Type:
		c.Kind, c.Was = Changed, was
		return nil
	case c.Type == Link:
		a, err := readLink(d.upper, name)
		if err != nil {
			return err
		}
		b, err := readLink(d.lower, name)
		same = err == nil && a == b
	case c.Type == File:
		same = l.sameFile(d, name, at)
	}
	switch {
	case !same:
		c.Kind = Changed
	case c.Mode != c.OldMode:
		c.Kind = Mode
	}
	return nil
}

// sameFile reports whether the content is the host's: a file that was only touched is no change.
// A host's file that cannot be read counts as another one.
func (l *lister) sameFile(d *dir, name string, at *place) bool {
	if at.upper.Size != at.lower.Size {
		return false
	}
	a, err := openFile(d.upper, path.Base(at.upperPath), true)
	if err != nil {
		return false
	}
	defer a.Close()
	b, err := openFile(d.lower, name, false)
	if err != nil {
		return false
	}
	defer b.Close()
	same, err := sameContent(a, b, at.upper.Size)
	return same && err == nil
}

// deleted lists what a whiteout or an opaque folder takes away, name by name.
func (l *lister) deleted(d *dir, name string, at place) error {
	if err := fstatat(d.lower, name, &at.lower); err != nil {
		if isGone(err) {
			return nil
		}
		return err
	}
	at.inLower, at.upperPath = true, path.Join(d.rel, name)
	at.changed = cmp.Or(at.changed, d.changed)
	c := &Change{Root: l.root.base(), Kind: Deleted, Type: typeOf(at.lower.Mode), OldSize: at.lower.Size, OldMode: perm(at.lower.Mode), at: &at}
	c.setPath(at.upperPath)
	l.judge(d, name, c)
	if err := l.add(c); err != nil {
		return err
	}
	if c.Type != Folder {
		return nil
	}
	c.OldSize = 0
	if d.depth == maxDepth || len(c.Path) > maxPath {
		c.NotCarried = "it is too deep; what is below it is not listed"
		return nil
	}
	return l.replacedFolder(d, name, &at)
}

// replacedFolder lists what is below a folder of the host that the command does not see.
func (l *lister) replacedFolder(d *dir, name string, at *place) error {
	lower, err := openDir(d.lower, name, false)
	if isGone(err) {
		return nil
	}
	if err != nil {
		l.changes[len(l.changes)-1].Conflict = "the host's folder cannot be read: " + err.Error()
		return nil
	}
	defer unix.Close(lower)
	names, err := readNames(lower)
	if err != nil {
		return err
	}
	below := dir{upper: -1, lower: lower, rel: at.upperPath, depth: d.depth + 1, changed: at.changed}
	for _, n := range names {
		if err := l.deleted(&below, n, place{root: l.root}); err != nil {
			return err
		}
	}
	return nil
}

// add keeps a change. The filter is asked later: a move may have one half that is wanted.
func (l *lister) add(c *Change) error {
	if len(l.changes) == maxChanges {
		return ErrTooMany
	}
	l.changes = append(l.changes, c)
	return nil
}

// judge adds to a change what a person has to know of it.
func (l *lister) judge(d *dir, name string, c *Change) {
	c.Conflict = l.conflict(d, name, c)
	if l.protect != nil {
		c.Protected = l.protect(c.Abs())
	}
	l.judgeGit(c)
	if c.Conflict != "" && len(l.kept) > 0 {
		_, err := l.r.mergeable(c)
		c.Mergeable = err == nil
	}
	if c.Kind == Deleted {
		return
	}
	st := &c.at.upper
	if (c.Type == File || c.Type == Folder) && st.Mode&(unix.S_IWOTH|unix.S_ISVTX) == unix.S_IWOTH && c.OldMode&unix.S_IWOTH == 0 {
		c.Notes = append(c.Notes, "every user may write it")
	}
	switch c.Type {
	case Pipe, Socket, Device:
		c.NotCarried = "a " + c.Type + " is not carried"
	case File:
		if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
			c.Notes = append(c.Notes, "its set-id bits are not carried")
		}
		if st.Nlink > 1 {
			c.Notes = append(c.Notes, "it is a hard link, and is carried as a file of its own")
		}
	case Link:
		if target, err := readLink(d.upper, name); err == nil && leadsOut(l.root.Path, c.Path, target) {
			c.Notes = append(c.Notes, "it leads out, to "+target)
		}
	}
}

func leadsOut(root, p, target string) bool {
	if !path.IsAbs(target) {
		target = path.Join(root, path.Dir(p), target)
	}
	return target != root && !strings.HasPrefix(path.Clean(target), strings.TrimSuffix(root, "/")+"/")
}

// judgeGit marks what git outside would run.
func (l *lister) judgeGit(c *Change) {
	const why = "git runs it, or takes settings from it"
	if c.Unit = gitUnit(c.Path); c.Unit != "" {
		rel := strings.TrimPrefix(strings.TrimPrefix(c.Path, c.Unit), "/")
		// A .git that is no folder leads git elsewhere.
		if c.Protected == "" && (rel != "" && gitRuns(rel) || rel == "" && (c.Type != Folder || c.Was != "")) {
			c.Protected = why
		}
		return
	}
	if c.Protected != "" {
		return
	}
	if p := strings.ToLower(c.Path); c.Kind != Deleted && c.Type != Folder && (p == ".jj/repo" || strings.HasSuffix(p, "/.jj/repo")) {
		c.Protected = "it leads jj to other settings, which name programs"
		return
	}
	// A git directory may have any name: HEAD makes it one.
	parent, name := path.Split(c.Path)
	dirs := []string{parent}
	switch {
	case name == "HEAD" && c.Kind == Added:
		// The settings were applied before, when there was no HEAD.
		for _, other := range []string{"config", "config.worktree", "commondir", "hooks", "info/attributes"} {
			if l.has(path.Join(parent, other)) {
				c.Protected = "it makes a git directory of a folder with settings or hooks"
			}
		}
		return
	case name == "config" || name == "config.worktree" || name == "commondir" || name == "hooks":
	case name == "attributes" && path.Base(parent) == "info", path.Base(parent) == "hooks":
		dirs[0] = path.Dir(path.Clean(parent))
	default:
		return
	}
	if l.has(path.Join(dirs[0], "HEAD")) {
		c.Protected = why
	}
}

// has reports whether the command or the host has a file, or had one.
func (l *lister) has(rel string) bool {
	_, upper := l.upper.stat(rel)
	_, lower := l.lower.stat(rel)
	return upper == nil || lower == nil
}

// markUnits has each part of a git directory need the yes of its most dangerous part.
func (l *lister) markUnits() {
	why := map[string]string{}
	for _, c := range l.changes {
		if c.Unit != "" && c.Protected != "" && why[c.Unit] == "" {
			why[c.Unit] = "the git directory has " + c.Path + ": " + c.Protected
		}
	}
	for _, c := range l.changes {
		if c.Protected == "" && c.Unit != "" {
			c.Protected = why[c.Unit]
		}
	}
	conflicts := map[string]bool{}
	for _, c := range l.changes {
		if c.Unit != "" && c.Conflict != "" {
			conflicts[c.Unit] = true
		}
	}
	for _, c := range l.changes {
		if c.Conflict == "" && conflicts[c.Unit] {
			c.Conflict = "another file of the git directory has a conflict"
		}
	}
}

// conflict says why the host's version may be another one than the command saw.
// Nobody can set ctime, so a file that did not change since the command began has an older one.
func (l *lister) conflict(d *dir, name string, c *Change) string {
	if d.blocked != "" {
		return d.blocked
	}
	at := c.at
	if !at.inLower {
		return l.missing(d, name, c)
	}
	if at.lower.Mode&unix.S_IFMT == unix.S_IFDIR && c.Was == "" {
		if c.Kind != Mode {
			return "" // what is in it answers for itself
		}
	}
	changed := false
	if o := l.original(c); o != nil {
		changed = !o.isHost(d.lower, name, &at.lower, l.ours[c.Abs()].Ctime)
	} else {
		changed = l.changedSince(d, name, c)
	}
	if changed {
		return "changed on the host since"
	}
	return ""
}

// original returns the original of a change, or nil. That of a deleted file is not asked: it may be of a file that was
// changed before, and the command may have seen another one.
func (l *lister) original(c *Change) *original {
	if len(l.kept) == 0 || c.Kind == Deleted || !l.kept[originalName(l.root.Path, c.at.upperPath)] {
		return nil
	}
	return l.r.readOriginal(l.root, c.at.upperPath)
}

// changedSince reports whether the host's file was changed after the command began.
func (l *lister) changedSince(d *dir, name string, c *Change) bool {
	changed := c.at.lower.Ctim.Nano()
	if own, ok := l.ours[c.Abs()]; ok && own.Ctime == changed {
		return false
	}
	return changed >= l.root.Start-l.setBack && changed >= l.began(d, name, c)-l.setBack
}

// began returns when the command began that made an entry of the upper folder, which is
// when it was made or later. Where that is not known, it is when the review began. It is not known in
// a folder that was made again: an earlier command may have removed it, so that the host's folder was not seen since.
func (l *lister) began(d *dir, name string, c *Change) int64 {
	began := l.root.Start
	var x unix.Statx_t
	if c.Kind == Deleted || d.opaque || unix.Statx(d.upper, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &x) != nil || x.Mask&unix.STATX_BTIME == 0 {
		return began
	}
	made := x.Btime.Sec*1e9 + int64(x.Btime.Nsec)
	for _, start := range l.times.Starts[l.root.Path] {
		if start <= made {
			began = max(began, start)
		}
	}
	return began
}

// hostHas reports whether a path, or something above it that is no folder, is there.
func (l *lister) hostHas(rel string) bool {
	for p := rel; p != "." && p != ""; p = path.Dir(p) {
		if st, err := l.lower.stat(p); err == nil {
			return st.Mode&unix.S_IFMT != unix.S_IFDIR
		}
	}
	return false
}

const deletedOnHost = "deleted on the host since"

// missing says whether the host has deleted what the command changed. Overlayfs marks the
// copies that it makes; a copy that the command has renamed is marked, too, so the host's folder must have
// changed as well.
func (l *lister) missing(d *dir, name string, c *Change) string {
	if d.replaced {
		return ""
	}
	if d.lower < 0 {
		fd, err := l.lower.folder(path.Dir(c.Path))
		if err == nil {
			unix.Close(fd)
		} else if l.hostHas(path.Dir(c.Path)) {
			return "the host has something else where its folder should be"
		}
		return ""
	}
	if c.Type == Folder || !hasXattr(d.upper, name, originAttr) {
		return ""
	}
	var st unix.Stat_t
	if err := unix.Fstat(d.lower, &st); err != nil {
		return ""
	}
	changed := st.Ctim.Nano()
	if own, ok := l.ours[path.Dir(c.Abs())]; ok && own.Ctime == changed || changed < l.root.Start-l.setBack {
		return ""
	}
	return deletedOnHost
}

// listFile lists a root that is a file. The command had a copy of it, and Base is the sum of what was copied.
func (l *lister) listFile() error {
	name := filepath.Base(l.root.Path)
	at := place{root: l.root, upperPath: "upper", inUpper: true}
	if err := fstatat(l.upper.fd, at.upperPath, &at.upper); err != nil {
		return err
	}
	at.inLower = fstatat(l.lower.fd, name, &at.lower) == nil
	at.changed = at.upper.Ctim.Nano()
	c := &Change{Root: l.root.base(), Kind: Added, Type: File, Size: at.upper.Size, Mode: perm(at.upper.Mode), at: &at}
	c.setPath(name)
	if at.inLower {
		c.Kind, c.OldSize, c.OldMode = Changed, at.lower.Size, perm(at.lower.Mode)
	}
	same, err := l.root.isBase(l.upper.fd, at.upperPath, &at.upper, true)
	if same || err != nil {
		return err
	}
	if same, err := l.root.isBase(l.lower.fd, name, &at.lower, false); err != nil || !same {
		if l.sameFile(&dir{upper: l.upper.fd, lower: l.lower.fd}, name, &at) {
			return nil
		}
		c.Conflict = "changed on the host since"
	}
	if l.protect != nil {
		c.Protected = l.protect(c.Abs())
	}
	return l.add(c)
}

// isBase reports whether a file has the content that the command began with.
func (t *root) isBase(dir int, name string, st *unix.Stat_t, own bool) (bool, error) {
	if st.Size != t.Size {
		return false, nil
	}
	sum, err := hashFile(dir, name, own)
	return sum == t.Base, err
}

// hashFile returns the SHA-256 of a file of any size, as in root.Base.
func hashFile(dir int, name string, own bool) (string, error) {
	f, err := openFile(dir, name, own)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
