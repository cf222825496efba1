package review

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Limits on the originals of a review. A file of the host that exceeds them has an original without a text.
const (
	maxOriginal  = 1 << 20
	maxOriginals = 64 << 20
	// maxOriginalFiles bounds their number. A file beyond it has none.
	maxOriginalFiles = 20_000
)

// An original is the host's file or link in whose place the upper folder has an entry, as it was when the entry was
// made. It is kept until cloche takes that entry out of the upper folder. Commands only ever replace the entry, so what
// they make of it began with this file.
//
// On the disk it is one file: a line of JSON, and the text. It is complete when it gets its name. It is not
// waited for until it is on the disk: after a crash of the machine, Sum shows a torn one, which counts as none.
type original struct {
	// Ino and Ctime are those of the host's file.
	Ino   uint64 `json:"ino"`
	Ctime int64  `json:"ctime"`
	version
	// Patched is what an apply made of the host's file that took a part of the change.
	Patched *version `json:"patched,omitempty"`
	// Conflict: the host had changed the file already, so this is not what the command began with.
	Conflict bool `json:"conflict,omitempty"`
	// NoText says why there is no text.
	NoText string `json:"no_text,omitempty"`

	text []byte
}

// A version identifies the content and the permissions of a file. Sum is its SHA-256, or empty if it was not read.
type version struct {
	Sum  string `json:"sum,omitempty"`
	Mode uint32 `json:"mode"`
}

func (r *Review) originalsDir() string { return filepath.Join(r.path, "originals") }

// originalName is the name of the original of a path of an upper folder.
func originalName(rootPath, upperPath string) string {
	sum := sha256.Sum256([]byte(rootPath + "\x00" + upperPath))
	return hex.EncodeToString(sum[:16])
}

// newOriginal is the name of an original until it is complete.
const newOriginal = "new"

// openOriginals opens the folder of the originals. It is made when the first is written.
func (r *Review) openOriginals(create bool) (tree, error) {
	if create {
		if err := os.Mkdir(r.originalsDir(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return tree{-1}, err
		}
	}
	return openTree(r.originalsDir())
}

// originalNames lists the originals.
func (r *Review) originalNames() (map[string]bool, error) {
	dir, err := r.openOriginals(false)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.close()
	names, err := readNames(dir.fd)
	list := make(map[string]bool, len(names))
	for _, name := range names {
		list[name] = true
	}
	return list, err
}

// readOriginal returns nil if there is no original, or a damaged one.
func (r *Review) readOriginal(t *root, upperPath string) *original {
	data, err := os.ReadFile(filepath.Join(r.originalsDir(), originalName(t.Path, upperPath)))
	if err != nil {
		return nil
	}
	head, text, found := bytes.Cut(data, []byte("\n"))
	o := &original{}
	if !found || json.Unmarshal(head, o) != nil {
		return nil
	}
	if o.hasText() {
		if sumOf(text) != o.Sum {
			return nil
		}
		o.text = text
	}
	return o
}

func (o *original) hasText() bool { return o.NoText == "" && !o.Conflict }

func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// writeOriginal writes or replaces an original.
func writeOriginal(dir int, name string, o *original) error {
	head, err := json.Marshal(o)
	if err != nil {
		return err
	}
	fd, err := unix.Openat(dir, newOriginal, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), newOriginal)
	_, err = f.Write(append(append(head, '\n'), o.text...))
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, unix.Unlinkat(dir, newOriginal, 0))
	}
	return unix.Renameat(dir, newOriginal, dir, name)
}

// isHost reports whether the host's file still is the original, or what an apply made of it.
func (o *original) isHost(dir int, name string, st *unix.Stat_t, ours int64) bool {
	if o.Conflict {
		return false
	}
	if o.Ino == st.Ino && o.Ctime == st.Ctim.Nano() {
		return true
	}
	if o.Sum == "" || typeOf(st.Mode) != File {
		return ours == st.Ctim.Nano()
	}
	if st.Size > MaxText {
		return false
	}
	sum, err := hashFile(dir, name, false)
	now := version{sum, perm(st.Mode)}
	return err == nil && (now == o.version || o.Patched != nil && now == *o.Patched)
}

// Keep keeps the originals of the files that commands have changed until now. A later change of the host is a conflict
// then, and can be merged. It may be called while a command runs.
func (r *Review) Keep() error { return r.keep(false) }

var errNotKept = errors.New("the originals of some changed files were not kept")

// keep also removes the originals of changes that are in the review no more if idle is set: no command runs.
func (r *Review) keep(idle bool) error {
	r.keeping.Lock()
	defer r.keeping.Unlock()
	if r.closed {
		return nil
	}
	if idle {
		defer r.closeFolders()
	}
	k := &keeper{lister: r.lister(nil), dir: tree{-1}, idle: idle}
	var err error
	if k.stale, err = r.originalNames(); err != nil {
		return err
	}
	k.files = len(k.stale)
	defer func() { k.dir.close() }()
	for i := range r.meta.Roots {
		k.root = &r.meta.Roots[i]
		if k.root.File || r.checkRoot(k.root) != nil {
			continue
		}
		if k.upper, k.lower, err = r.trees(k.root); err != nil {
			return err
		}
		err = k.folder(&dir{upper: k.upper.fd, lower: k.lower.fd})
		k.upper.close()
		k.lower.close()
		if err != nil {
			return err
		}
	}
	for name := range k.stale {
		if idle {
			err = errors.Join(err, os.Remove(filepath.Join(r.originalsDir(), name)))
		}
	}
	if k.partly {
		err = errors.Join(err, errNotKept)
	}
	return err
}

// A keeper looks for files that both the upper folder and the host have.
type keeper struct {
	*lister
	dir   tree            // the folder of the originals, once it is needed
	stale map[string]bool // originals that no entry of an upper folder was found for
	files int
	size  int64
	idle  bool // no command runs, so that closed folders can be opened
	// partly: a file has no original.
	partly bool
}

// folder looks at a folder that both have. What cannot be read is left out: it has no originals.
func (k *keeper) folder(d *dir) error {
	if d.depth > maxDepth || len(d.rel) > maxPath {
		return nil
	}
	names, err := readNames(d.upper)
	if err != nil {
		k.partly = true
		return nil //nolint:nilerr // the command removes it now
	}
	for _, name := range names {
		at := path.Join(d.rel, name)
		key := ""
		known := false
		if k.files > 0 {
			key = originalName(k.root.Path, at)
			if known = k.stale[key]; known {
				delete(k.stale, key)
			}
		}
		var st unix.Stat_t
		if fstatat(d.lower, name, &st) != nil {
			continue
		}
		switch {
		case typeOf(st.Mode) == Folder:
			err = k.below(d, name, at)
		case !known:
			err = k.file(d, name, at, &st)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (k *keeper) below(d *dir, name, rel string) error {
	var st unix.Stat_t
	if fstatat(d.upper, name, &st) != nil || typeOf(st.Mode) != Folder {
		return nil // what the host has in it answers for itself
	}
	if k.idle {
		if err := k.r.openFolder(k.root, rel, d.upper, name, st.Mode); err != nil {
			return err
		}
	}
	u, err := openDir(d.upper, name, false)
	if err != nil {
		k.partly = true
		return nil // the command has closed it
	}
	defer unix.Close(u)
	l, err := openDir(d.lower, name, false)
	if err != nil {
		k.partly = true
		return nil // the host has closed it
	}
	defer unix.Close(l)
	return k.folder(&dir{upper: u, lower: l, rel: rel, depth: d.depth + 1, opaque: d.opaque || isOpaque(d.upper, name)})
}

// file keeps an original.
func (k *keeper) file(d *dir, name, rel string, st *unix.Stat_t) error {
	at := place{root: k.root, upperPath: rel, inUpper: true, inLower: true, lower: *st}
	if err := fstatat(d.upper, name, &at.upper); err != nil {
		return nil //nolint:nilerr // the command has removed it
	}
	c := &Change{Root: k.root.base(), Kind: Changed, Type: typeOf(at.upper.Mode), at: &at}
	c.setPath(rel)
	if k.files >= maxOriginalFiles {
		k.partly = true
		return nil
	}
	if isWhiteout(&at.upper) { // a later command may make the file again
		c.Kind = Deleted
	}
	if k.ours == nil {
		var err error
		if k.ours, err = k.r.readOurs(); err != nil {
			return err
		}
	}
	if k.dir.fd < 0 {
		var err error
		if k.dir, err = k.r.openOriginals(true); err != nil {
			return err
		}
		if k.size, err = sizeOf(k.dir.fd); err != nil {
			return err
		}
	}
	o := &original{Ino: st.Ino, Ctime: st.Ctim.Nano(), version: version{Mode: perm(st.Mode)}}
	if k.changedSince(d, name, c) {
		o.Conflict = true
	} else if !o.read(d.lower, name, st, maxOriginals-k.size) {
		k.partly = true
		return nil // the host changes it now
	}
	if err := writeOriginal(k.dir.fd, originalName(k.root.Path, rel), o); err != nil {
		return err
	}
	k.files, k.size = k.files+1, k.size+int64(len(o.text))
	return nil
}

// sizeOf is the size of the files in a folder.
func sizeOf(dir int) (size int64, err error) {
	names, err := readNames(dir)
	for _, name := range names {
		var st unix.Stat_t
		if fstatat(dir, name, &st) == nil {
			size += st.Size
		}
	}
	return size, err
}

// read reads the host's file, with a text of at most room bytes. It reports whether this still is the file that was seen.
func (o *original) read(dir int, name string, st *unix.Stat_t, room int64) bool {
	switch {
	case typeOf(st.Mode) != File:
		o.NoText = "it was no file"
		return true
	case st.Size > maxOriginal:
		o.NoText = "it was larger than 1 MiB"
		return true
	case st.Size > room:
		o.NoText = "the review already keeps 64 MiB of such copies"
		return true
	}
	text, err := readSeen(dir, name, false, st, maxOriginal)
	if errors.Is(err, errChanged) {
		return false
	}
	if err != nil {
		o.NoText = "it could not be read"
		return true
	}
	o.Sum = sumOf(text)
	if (&Content{Text: text}).IsBinary() {
		o.NoText = "it was binary"
	} else {
		o.text = text
	}
	return true
}

// readSeen reads a file that was just seen. The error is errChanged if it is another one, or changes meanwhile.
func readSeen(dir int, name string, own bool, seen *unix.Stat_t, most int64) ([]byte, error) {
	f, err := openFile(dir, name, own)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	// Only what is the same after the reading was it meanwhile.
	if st.Ino != seen.Ino || st.Size != int64(len(text)) || !own && st.Ctim != seen.Ctim || own && st.Mtim != seen.Mtim {
		return nil, errChanged
	}
	return text, nil
}

// notePatched notes what an apply is about to make of a host's file that still is the original. So it is no conflict.
func (r *Review) notePatched(t *root, upperPath string, text []byte, mode uint32) error {
	o := r.readOriginal(t, upperPath)
	if o == nil {
		return nil
	}
	dir, err := r.openOriginals(false)
	if err != nil {
		return err
	}
	defer dir.close()
	o.Patched = &version{sumOf(text), mode}
	return writeOriginal(dir.fd, originalName(t.Path, upperPath), o)
}

func keptOriginal(n int) string { return stageName(n) + ".original" }

// takeOriginal moves the original of an applied change to what the apply replaced, and back for an undo. There may be none.
func (a *applier) takeOriginal(t *target, e *entry) error {
	return a.moveOriginal(filepath.Join(a.r.originalsDir(), originalName(t.root.Path, string(e.Upper))), filepath.Join(a.r.stageDir(), keptOriginal(e.N)))
}

func (a *applier) returnOriginal(t *target, e *entry) error {
	return a.moveOriginal(filepath.Join(a.r.stageDir(), keptOriginal(e.N)), filepath.Join(a.r.originalsDir(), originalName(t.root.Path, string(e.Upper))))
}

// retakeOriginal takes an original again whose change is not in the review yet: its undo was killed.
func (a *applier) retakeOriginal(t *target, e *entry) error {
	if len(e.Upper) == 0 || t.root.File {
		return nil
	}
	if _, err := t.upper.stat(string(e.Upper)); isGone(err) {
		return a.takeOriginal(t, e)
	}
	return nil
}

func (a *applier) moveOriginal(from, to string) error {
	if err := os.Rename(from, to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
