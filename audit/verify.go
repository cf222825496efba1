package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// The kinds of findings.
const (
	foundChanged     = "changed"      // a line is not what was written
	foundRemoved     = "removed"      // lines before this one are gone
	foundInserted    = "inserted"     // a line was not written by cloche
	foundReordered   = "reordered"    // a line is not in its place
	foundCutOff      = "cut-off"      // lines at the end are gone
	foundMissingFile = "missing-file" // a whole file is gone
	foundBadHead     = "bad-head"     // the head file is gone, damaged or of another log
	foundRepaired    = "repaired"     // the head file was gone for a while
	foundTorn        = "torn"         // the writer died in the middle of a line
)

// A Finding is one problem, at a line of a file. Line is 0 if it is about the whole file. Kind
// is changed, removed, inserted, reordered, cut-off, missing-file, bad-head, repaired or torn.
type Finding struct {
	Kind   string `json:"kind"`
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Detail string `json:"detail"`
}

func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", f.File, f.Kind, f.Detail)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Kind, f.Detail)
}

// Tampering reports whether somebody must have changed the log. A torn line is only the trace
// of a crash.
func (f Finding) Tampering() bool { return f.Kind != foundTorn }

// A Report is the result of Verify. Count and Hash identify the whole log up to its last line:
// a copy kept elsewhere proves the log up to that point.
type Report struct {
	Files    []string  `json:"files"`
	Count    uint64    `json:"count"`
	Hash     string    `json:"hash"`
	Findings []Finding `json:"findings,omitempty"`
}

// OK reports whether nothing indicates tampering.
func (r Report) OK() bool {
	return !slices.ContainsFunc(r.Findings, Finding.Tampering)
}

// Verify reads the log at path and checks its chain. Writers wait meanwhile. The error is
// about reading; it wraps fs.ErrNotExist if there is no log.
func Verify(path string) (Report, error) {
	root, err := openFolder(path)
	if err != nil {
		return Report{}, err
	}
	defer root.Close()
	h, unlock, headErr := lockHead(root)
	defer unlock()
	if headErr != nil && !errors.Is(headErr, errNoHead) && !errors.Is(headErr, fs.ErrNotExist) {
		return Report{}, fmt.Errorf("audit log %s: %w", path, headErr)
	}
	files, err := dayNames(root)
	if err != nil {
		return Report{}, err
	}
	lines, err := loadLines(root, files)
	if err != nil {
		return Report{}, err
	}
	c := newChecker(files, lines, h, headErr == nil)
	return c.check(), nil
}

// lockHead locks out writers and reads the head.
func lockHead(root *os.Root) (h head, unlock func(), err error) {
	f, err := openPlain(root, headName, os.O_RDONLY)
	if err != nil {
		return head{}, func() {}, err
	}
	if err := lockFile(f, false); err != nil {
		f.Close()
		return head{}, func() {}, fmt.Errorf("lock %s: %w", headName, err)
	}
	h, err = readHead(f)
	return h, func() { unlockFile(f); f.Close() }, err
}

// logLine is what the checker needs from a line. The fields from seq on are those of the
// event, if the line could be parsed.
type logLine struct {
	file     int // index
	number   int
	complete bool
	hash     string
	parsed   bool
	seq      uint64
	prev     string
	torn     string
	prevFile string
	repair   bool
}

// loadLines reads all files.
func loadLines(root *os.Root, files []string) ([]logLine, error) {
	var out []logLine
	for i, name := range files {
		f, err := openPlain(root, name, os.O_RDONLY)
		if err != nil {
			return nil, err
		}
		lines := newLineReader(f)
		for lines.next() {
			out = append(out, newLogLine(i, lines))
		}
		f.Close()
		if lines.err != nil {
			return nil, fmt.Errorf("%s: %w", name, lines.err)
		}
	}
	return out, nil
}

func newLogLine(file int, lines *lineReader) logLine {
	l := logLine{file: file, number: lines.number, complete: lines.complete, hash: hashOf(lines.line)}
	if e, err := decode(lines.line); err == nil {
		l.parsed, l.seq, l.prev, l.torn, l.prevFile, l.repair = true, e.Seq, e.Prev, e.Torn, e.PrevFile, e.Kind == kindRepair
	}
	return l
}
