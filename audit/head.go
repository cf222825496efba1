package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	headName = "head.json"
	// headSize is the fixed length of the head file. The head is written in place, by one
	// call, within one disk sector, so a killed writer leaves the old head or the new one. The
	// file is never replaced, so that it can carry the lock.
	headSize = 512
	// headFormat is the newest known format. A newer one is an error.
	headFormat = 1
)

// genesis is the Prev of the first line.
var genesis = strings.Repeat("0", 2*sha256.Size)

// head describes the end of the log after the last write.
type head struct {
	Format int    `json:"format"`
	Count  uint64 `json:"count"` // lines in all files
	Hash   string `json:"hash"`  // of the last line
	File   string `json:"file"`  // that contains it
	Size   int64  `json:"size"`  // of that file
}

// errNoHead means that the head file is empty or damaged.
var errNoHead = errors.New("no valid head")

func readHead(f io.ReaderAt) (head, error) {
	buf := make([]byte, headSize)
	n, err := f.ReadAt(buf, 0)
	if err != nil && err != io.EOF {
		return head{}, err
	}
	var h head
	if json.Unmarshal(bytes.TrimSpace(buf[:n]), &h) != nil || !h.valid() {
		return head{}, errNoHead
	}
	if h.Format > headFormat {
		return head{}, fmt.Errorf("%s has format %d, this version knows %d; update cloche", headName, h.Format, headFormat)
	}
	return h, nil
}

func (h head) valid() bool {
	raw, err := hex.DecodeString(h.Hash)
	return err == nil && len(raw) == sha256.Size && isDayName(h.File) && h.Size >= 0 && h.Format > 0
}

func (h head) writeTo(f io.WriterAt) error {
	h.Format = headFormat
	buf := bytes.Repeat([]byte(" "), headSize)
	buf[headSize-1] = '\n'
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	copy(buf, text)
	_, err = f.WriteAt(buf, 0)
	return err
}

func hashOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

const (
	dayPrefix = "audit-"
	daySuffix = ".jsonl"
)

// dayName returns the name of the file for the lines of a day.
func dayName(t time.Time) string { return dayPrefix + t.UTC().Format(time.DateOnly) + daySuffix }

func isDayName(name string) bool {
	day, ok := strings.CutPrefix(name, dayPrefix)
	day, ok2 := strings.CutSuffix(day, daySuffix)
	_, err := time.Parse(time.DateOnly, day)
	return ok && ok2 && err == nil
}

// dayNames lists the files of a log, oldest first.
func dayNames(root *os.Root) ([]string, error) {
	f, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !isDayName(n) })
	slices.Sort(names)
	return names, nil
}

// end is where the next line goes, and what the line has to record about that position.
type end struct {
	head       // the last good line, and the file to append to
	size int64 // the real length of that file
	// allocated is up to which offset the file has disk space.
	allocated int64
	midLine   bool   // the file does not end with a newline
	torn      string // hash of the unfinished line at the end
	prevFile  string // the file before, if this one is new
	repair    string // why the head file could not be used
}

// findEnd reads the head and catches up with what was written after it: a whole line or a part
// of one, by a process that was killed before it could update the head.
func (d *Dir) findEnd() (end, error) {
	h, err := readHead(d.head)
	repair := ""
	if errors.Is(err, errNoHead) {
		h, repair, err = d.rebuildHead()
	}
	if err != nil {
		return end{}, err
	}
	n := end{head: h, repair: repair}
	return n, d.catchUp(&n)
}

// rebuildHead finds the last good line without a head. For an empty folder it writes the first
// head; otherwise it returns the reason for the repair, which is recorded.
func (d *Dir) rebuildHead() (h head, repair string, err error) {
	h = head{Hash: genesis, File: dayName(d.now())}
	names, err := dayNames(d.root)
	if err != nil {
		return head{}, "", err
	}
	if len(names) == 0 {
		return h, "", h.writeTo(d.head)
	}
	repair = headName + " was missing or damaged; lines at the end of the log may have been removed unseen"
	for _, name := range slices.Backward(names) {
		found, err := d.lastLine(name)
		if err != nil {
			return head{}, "", err
		}
		if found.Count > 0 {
			return found, repair, nil
		}
	}
	h.File = names[len(names)-1]
	return h, repair, nil
}

// lastLine returns a head for the last readable line of a file. Its count is zero if there is
// none.
func (d *Dir) lastLine(name string) (head, error) {
	f, err := openOwned(d.root, name, os.O_RDONLY)
	if err != nil {
		return head{}, err
	}
	defer f.Close()
	h := head{File: name, Hash: genesis}
	lines := newLineReader(f)
	for lines.next() {
		if e, err := decode(lines.line); err == nil && lines.complete {
			h.Count, h.Hash, h.Size = e.Seq, hashOf(lines.line), lines.offset
		}
	}
	return h, lines.err
}

// catchUp compares the head with the length of its file and moves n past whole
// lines that continue the chain.
func (d *Dir) catchUp(n *end) error {
	info, err := d.openDay(n.File, false)
	if errors.Is(err, fs.ErrNotExist) {
		n.Size, n.size, n.allocated = 0, 0, 0
		return nil
	}
	if err != nil {
		return err
	}
	n.size, n.allocated = info.Size(), allocated(info)
	if n.size > n.Size {
		return n.readTail(d.day)
	}
	n.Size = n.size
	n.midLine, err = endsMidLine(d.day, n.size)
	return err
}

// readTail reads what comes after the head's last line. A line that only lacks its newline
// counts as complete.
func (n *end) readTail(f *os.File) error {
	lines := newLineReader(io.NewSectionReader(f, n.Size, n.size-n.Size))
	start, foreign := n.Size, false
	for lines.next() {
		e, err := decode(lines.line)
		switch {
		case err == nil && e.Prev == n.Hash && e.Seq == n.Count+1:
			n.Count, n.Hash, n.Size = e.Seq, hashOf(lines.line), start+lines.offset
			n.midLine, foreign = !lines.complete, false
		case lines.complete:
			foreign = true
		default:
			n.midLine = true
			if !foreign {
				n.torn = hashOf(lines.line)
			}
		}
	}
	return lines.err
}

// endsMidLine reports whether the byte before size is not a newline. The length alone does not
// show this: if the newline was overwritten, the next line would be appended to an unfinished
// one and lost.
func endsMidLine(f io.ReaderAt, size int64) (bool, error) {
	if size == 0 {
		return false, nil
	}
	last := make([]byte, 1)
	_, err := f.ReadAt(last, size-1)
	return last[0] != '\n', err
}

// rollOver moves n to today's file, past files that a killed process may have begun.
func (d *Dir) rollOver(n *end) error {
	today := dayName(d.now())
	if today <= n.File {
		return nil
	}
	names, err := dayNames(d.root)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name > n.File {
			if err := d.enter(n, name); err != nil {
				return err
			}
		}
	}
	if today > n.File {
		return d.enter(n, today)
	}
	return nil
}

// enter continues in a later file. A torn line at the end of the file before stays there; its
// hash goes into the next line.
func (d *Dir) enter(n *end, name string) error {
	if n.Count > 0 {
		n.prevFile = n.File
	}
	torn := n.torn
	n.File, n.Size, n.size, n.allocated, n.midLine, n.torn = name, 0, 0, 0, false, ""
	count := n.Count
	if err := d.catchUp(n); err != nil {
		return err
	}
	if n.torn == "" && n.Count == count {
		n.torn = torn
	}
	if n.size > 0 {
		n.prevFile = ""
	}
	return nil
}
