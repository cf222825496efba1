package review

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/ownfile"
)

// An entry is a line of the journal. An intent is on the disk before a name of the host
// changes. Whether the change was made can be seen in the stage: each is one rename to or from it.
type entry struct {
	Step step `json:"step"`
	// N is the name of the file in the stage.
	N  int `json:"n,omitempty"`
	Op op  `json:"op,omitempty"`
	// Root is the path of the root. The paths are below the trees of the root.
	Root  string `json:"root,omitempty"`
	Path  []byte `json:"path,omitempty"`
	Upper []byte `json:"upper,omitempty"` // empty if the upper folder has no entry
	// Ino is the file that is put there, UpperIno the entry of the upper folder.
	Ino uint64 `json:"ino,omitempty"`
	// HostIno is the file of the host that is replaced or deleted.
	HostIno  uint64 `json:"host_ino,omitempty"`
	UpperIno uint64 `json:"upper_ino,omitempty"`
	Mode     uint32 `json:"mode,omitempty"`
	OldMode  uint32 `json:"old_mode,omitempty"`
	// Ctime is that of the file, DirCtime that of its folder, after the change.
	Ctime    int64 `json:"ctime,omitempty"`
	DirCtime int64 `json:"dir_ctime,omitempty"`
	// Stages are the stages outside the store, by root.
	Stages map[string]string `json:"stages,omitempty"`
}

type step string

const (
	stepOurs   step = "ours"  // changed by an apply before the last
	stepApply  step = "apply" // the last apply begins
	stepIntent step = "intent"
	stepDone   step = "done"
	stepUndo   step = "undo" // an undo of the last apply begins
	stepUndone step = "undone"
	// Everything up to N was taken out of the review.
	stepSettled step = "settled"
)

type op string

const (
	opPut     op = "put"     // a name that was not there
	opReplace op = "replace" // a name that was there
	opDelete  op = "delete"
	opMkdir   op = "mkdir"
	opRmdir   op = "rmdir"
	opMode    op = "mode"
)

// own is what an apply or undo left on the host.
type own struct{ Ctime int64 }

// A record is what the journal says of one change of the last apply.
type record struct {
	entry
	done, undone bool
}

type journal struct {
	stages  map[string]string
	settled int
	undo    bool // an undo has begun
	list    []*record
	byN     map[int]*record
	ours    map[string]own // by absolute path
}

func (r *Review) journalFile() string { return filepath.Join(r.path, "journal") }

// pendingFile exists while an apply or undo is not finished.
func (r *Review) pendingFile() string { return filepath.Join(r.path, "pending") }

func (r *Review) setPending() error { return os.WriteFile(r.pendingFile(), nil, 0o600) }

// stageDir is the folder of what the last apply replaced, and of what it is about to put in place.
func (r *Review) stageDir() string { return filepath.Join(r.path, "applied") }

func (r *Review) readJournal() (*journal, error) {
	j := &journal{byN: map[int]*record{}, ours: map[string]own{}}
	f, err := os.Open(r.journalFile())
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e entry
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // cut off by a crash, and followed by what a later command wrote
		}
		j.take(r, e)
	}
	return j, lines.Err()
}

func (j *journal) take(r *Review, e entry) {
	switch e.Step {
	case stepApply:
		j.stages, j.list, j.byN, j.settled = e.Stages, nil, map[int]*record{}, 0
		j.undo = false
		return
	case stepUndo:
		j.undo = true
		return
	case stepSettled:
		j.settled = e.N
		return
	case stepIntent:
		rec := &record{entry: e}
		j.list = append(j.list, rec)
		j.byN[e.N] = rec
		return
	case stepDone, stepUndone:
		rec := j.byN[e.N]
		if rec == nil {
			return
		}
		rec.done, rec.undone = true, e.Step == stepUndone
		rec.Ctime = e.Ctime
		e.Root, e.Path = rec.Root, rec.Path
	}
	abs := r.absOf(e.Root, string(e.Path))
	if e.Ctime != 0 {
		j.ours[abs] = own{e.Ctime}
	}
	if e.DirCtime != 0 {
		j.ours[filepath.Dir(abs)] = own{e.DirCtime}
	}
}

// absOf is the path on the host of a path below a root's trees.
func (r *Review) absOf(rootPath, rel string) string {
	for i := range r.meta.Roots {
		if t := &r.meta.Roots[i]; t.Path == rootPath {
			return filepath.Join(t.base(), rel)
		}
	}
	return filepath.Join(rootPath, rel)
}

// readOurs returns what applies have left on the host: that is no change of the host's.
func (r *Review) readOurs() (map[string]own, error) {
	j, err := r.readJournal()
	if err != nil {
		return nil, err
	}
	return j.ours, nil
}

// A writer appends to the journal.
type writer struct {
	file *os.File
	buf  bytes.Buffer
}

// newJournal begins the journal of an apply. What earlier applies left on the host is carried over.
func (r *Review) newJournal(old *journal, stages map[string]string) (*writer, error) {
	w := &writer{}
	for abs, own := range old.ours {
		// A path is absolute here, which no root is needed for.
		w.add(entry{Step: stepOurs, Root: "/", Path: []byte(abs), Ctime: own.Ctime})
	}
	w.add(entry{Step: stepApply, Stages: stages})
	if err := ownfile.Write(r.journalFile(), w.buf.Bytes()); err != nil {
		return nil, err
	}
	return r.appendJournal()
}

func (r *Review) appendJournal() (*writer, error) {
	f, err := os.OpenFile(r.journalFile(), os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	w := &writer{file: f}
	w.buf.WriteByte('\n') // the last line may be cut off
	return w, nil
}

func (w *writer) add(e entry) {
	text, err := json.Marshal(e)
	if err != nil {
		panic("bug: a line of the journal is no JSON: " + err.Error())
	}
	w.buf.Write(append(text, '\n'))
}

// flush writes the lines, and waits for the disk if sync is set.
func (w *writer) flush(sync bool) error {
	_, err := w.file.Write(w.buf.Bytes())
	w.buf.Reset()
	if err == nil && sync {
		err = w.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the journal of the review: %w", err)
	}
	return nil
}

func (w *writer) close() error { return w.file.Close() }
