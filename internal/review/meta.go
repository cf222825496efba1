package review

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cloche-dev/cloche/internal/ownfile"
)

// meta is what is on the disk about a review before its first command starts.
type meta struct {
	Version   int       `json:"version"`
	Name      string    `json:"name"`
	Workspace string    `json:"workspace"`
	Began     time.Time `json:"began"`
	Roots     []root    `json:"roots"`
}

// times are when commands of a review began. They are written for each command without waiting for
// the disk: if they are lost, the review counts from its beginning, and may show conflicts that are none.
type times struct {
	// Clock is by how much the wall clock was ahead of the time since the boot Boot, in
	// nanoseconds, when it was at its latest. It shows that the clock was set back.
	Clock int64  `json:"clock"`
	Boot  string `json:"boot"`
	// Last is when the last command began.
	Last int64 `json:"last"`
	// Starts has, for each root, the times at which commands began, as the file system of the root
	// writes them into ctime.
	Starts map[string][]int64 `json:"starts"`
}

// root is a writable path of the review. Dev and Ino tell whether it is still the same.
type root struct {
	Path  string `json:"path"`
	Layer int    `json:"layer"`
	File  bool   `json:"file,omitempty"`
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	// Boot is the boot in which Dev was noted.
	Boot string `json:"boot,omitempty"`
	// Start is when the root was added, as its file system writes it into ctime. What was changed
	// before has an older ctime, and nobody can set one.
	Start int64 `json:"start"`
	// Base and Size are the SHA-256 and the size of a file when it was copied.
	Base string `json:"base,omitempty"`
	Size int64  `json:"size,omitempty"`
}

// maxStarts bounds the list of the starts of a root.
const maxStarts = 1000

const metaVersion = 1

// id is the name of a review's folder in the store.
func id(workspace, name string) string {
	sum := sha256.Sum256([]byte(workspace))
	return name + "-" + hex.EncodeToString(sum[:6])
}

func (s Store) folder(workspace, name string) string {
	return filepath.Join(s.dir, id(workspace, name))
}

func (r *Review) layer(t root) Layer {
	dir := filepath.Join(r.path, "layers", strconv.Itoa(t.Layer))
	l := Layer{Root: t.Path, Upper: filepath.Join(dir, "upper")}
	if !t.File {
		l.Work = filepath.Join(dir, "work")
	}
	return l
}

func readMeta(dir string) (meta, error) {
	var m meta
	file := filepath.Join(dir, "meta.json")
	text, err := os.ReadFile(file)
	if err == nil && len(text) == 0 { // power was lost before the first command could do anything: see writeFirstMeta
		err = &fs.PathError{Op: "read", Path: file, Err: fs.ErrNotExist}
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("read %s: %w; the layers beside it have the changes", file, err)
	}
	if m.Version != metaVersion {
		return m, fmt.Errorf("%s has version %d, and this cloche knows version %d: use the cloche that began the review", file, m.Version, metaVersion)
	}
	return m, nil
}

func (r *Review) metaFile() string { return filepath.Join(r.path, "meta.json") }

func (r *Review) writeMeta() error {
	text, err := json.Marshal(r.meta)
	if err != nil {
		return err
	}
	return ownfile.Write(r.metaFile(), text)
}

// readTimes returns no times if there is no file or a damaged one.
func (r *Review) readTimes() times {
	var t times
	if text, err := os.ReadFile(filepath.Join(r.path, "times.json")); err != nil || json.Unmarshal(text, &t) != nil || t.Starts == nil {
		t = times{Starts: map[string][]int64{}}
	}
	return t
}

func (r *Review) writeTimes(t times) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return ownfile.WriteCache(filepath.Join(r.path, "times.json"), text)
}
