package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// Dir is the log in a folder. Many processes and goroutines may write to the
// same folder at once; a lock on the head file puts their lines in order.
//
// Nothing is created before the first Record. The folder gets mode 0700 and its files 0600,
// even if they exist with looser modes. A folder or file that is a symbolic link, has a second
// hard link, or belongs to another user is an error.
//
// A line goes into the file of its day in UTC, but never into a file before the newest: the
// chain is in the order of the file names even if the clock is set back. Space after the last
// line is kept allocated for the ends of runs, so that the end of a run is recorded even if a
// command has filled the disk. See room.
type Dir struct {
	path string
	now  func() time.Time
	// write appends bytes to a file. A test replaces it by one that fails.
	write func(*os.File, []byte) (int, error)

	mu   sync.Mutex
	root *os.Root
	head *os.File
	day  *os.File // the file that was used last
	name string   // of day
}

// NewDir returns the log in the folder at path. It does not access the folder yet.
func NewDir(path string) *Dir {
	return &Dir{path: path, now: time.Now, write: (*os.File).Write}
}

// Record appends one line. If it fails, the event was not recorded.
func (d *Dir) Record(e Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.record(e.prepare(d.now)); err != nil {
		return fmt.Errorf("audit log %s: %w", d.path, err)
	}
	return nil
}

func (d *Dir) record(e Event) error {
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	end, err := d.findEnd()
	if err == nil {
		err = d.rollOver(&end)
	}
	if err == nil {
		err = d.add(e, end, true)
	}
	if !isFull(err) || e.Kind != End {
		return err
	}
	// The room is in the file that has the last line, even if that is not today's.
	if end, err = d.findEnd(); err != nil {
		return err
	}
	return d.add(e.short(), end, false)
}

// add writes an event at the end. With reserve, it keeps the room after it allocated.
func (d *Dir) add(e Event, end end, reserve bool) error {
	if _, err := d.openDay(end.File, true); err != nil {
		return err
	}
	lines, next, err := end.lines(e)
	if err == nil && reserve {
		err = d.reserve(end, len(lines))
	}
	if err == nil {
		err = d.appendLines(lines, end)
	}
	if err != nil {
		return err
	}
	return next.writeTo(d.head)
}

// room is the space after the last line that is kept allocated, if the file system can do
// that. Only ends of runs use it, in their short form of a few hundred bytes: every other line
// has to leave at least half of it free. So more than fifty concurrent runs can still record
// their ends on a full disk.
const room = 64 << 10

// reserve allocates space for lines of that length and the room after them.
func (d *Dir) reserve(end end, length int) error {
	need := end.size + int64(length)
	if end.allocated >= need+room/2 {
		return nil
	}
	if err := allocate(d.day, end.size, need+room); isFull(err) {
		return fmt.Errorf("no space for this line and the end of the run: %w", err)
	}
	return nil // if the file system cannot allocate ahead, there is no room
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// short returns the event with how the run ended, and without fields that can be long or that
// the Start event has.
func (e Event) short() Event {
	more := e.DeniedMore
	for i := range e.Denied {
		more += e.Denied[i].Count
	}
	return Event{Time: e.Time, Kind: e.Kind, Run: e.Run, Version: e.Version, PID: e.PID, UID: e.UID, Clipped: len(e.Argv) > 0,
		Backend: e.Backend, Confined: e.Confined, Layer: e.Layer, DeniedMore: more,
		ExitCode: e.ExitCode, Signal: e.Signal, DurationMS: e.DurationMS, TimedOut: e.TimedOut, Canceled: e.Canceled, Truncated: e.Truncated, Exceeded: e.Exceeded,
		Error: cutAt(e.Error, 200), Refusal: e.Refusal, Cause: e.Cause,
		Notices: []string{"the disk was full: this record has no more than how the run ended"}}
}

// Close closes the files. A later Record opens them again.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closeFiles()
}

func (d *Dir) closeFiles() error {
	err := d.closeDay()
	if d.head != nil {
		err = errors.Join(err, d.head.Close())
	}
	if d.root != nil {
		err = errors.Join(err, d.root.Close())
	}
	d.head, d.root = nil, nil
	return err
}

func (d *Dir) closeDay() error {
	if d.day == nil {
		return nil
	}
	err := d.day.Close()
	d.day, d.name = nil, ""
	return err
}

// lock opens the folder and locks its head file. If the files were removed since the last
// Record, it opens new ones: a line written to a removed file would be lost.
func (d *Dir) lock() (unlock func(), err error) {
	for range 3 {
		if err := d.openFiles(); err != nil {
			return nil, err
		}
		if err := lockFile(d.head, true); err != nil {
			return nil, fmt.Errorf("lock %s: %w", headName, err)
		}
		if info, err := d.head.Stat(); err == nil && links(info) > 0 {
			return func() { unlockFile(d.head) }, nil
		}
		unlockFile(d.head)
		_ = d.closeFiles()
	}
	return nil, fmt.Errorf("%s is removed again and again; stop whatever removes it", headName)
}

func (d *Dir) openFiles() error {
	if d.head != nil {
		return nil
	}
	root, err := makeFolder(d.path)
	if err != nil {
		return err
	}
	head, err := openOwned(root, headName, os.O_RDWR|os.O_CREATE)
	if err != nil {
		root.Close()
		return err
	}
	d.root, d.head = root, head
	return nil
}

// openDay opens the file of that name for appending, unless it is open already, and returns
// its info. A file that was removed since it was opened is opened again.
func (d *Dir) openDay(name string, create bool) (fs.FileInfo, error) {
	if d.name == name {
		if info, err := d.day.Stat(); err == nil && links(info) > 0 {
			return info, nil
		}
	}
	_ = d.closeDay()
	flag := os.O_RDWR | os.O_APPEND
	if create {
		flag |= os.O_CREATE
	}
	f, err := openOwned(d.root, name, flag)
	if err != nil {
		return nil, err
	}
	d.day, d.name = f, name
	return f.Stat()
}

// appendLines writes at the end of the current day's file in one call. If only a part was
// written, it is removed again; if that fails too, the next Record marks it as a torn line.
func (d *Dir) appendLines(lines []byte, end end) error {
	n, err := d.write(d.day, lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	if err == nil {
		return nil
	}
	if n > 0 {
		_ = d.day.Truncate(end.size)
	}
	return err
}

// lines encodes the event, preceded by a newline or a repair event if necessary, as the
// continuation of the log. next is the head after them.
func (n end) lines(e Event) (text []byte, next head, err error) {
	var b bytes.Buffer
	if n.midLine {
		b.WriteByte('\n')
	}
	next = n.head
	events := []Event{e}
	if n.repair != "" {
		events = []Event{{Kind: kindRepair, Time: e.Time, PID: e.PID, UID: e.UID, Version: e.Version, Notices: []string{n.repair}}, e}
	}
	events[0].Torn, events[0].PrevFile = n.torn, n.prevFile
	for _, e := range events {
		e.Seq, e.Prev = next.Count+1, next.Hash
		line, err := encode(e)
		if err != nil {
			return nil, head{}, err
		}
		next.Count, next.Hash = e.Seq, hashOf(line)
		b.Write(line)
		b.WriteByte('\n')
	}
	next.Size = n.size + int64(b.Len())
	return b.Bytes(), next, nil
}
