package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"time"
)

// A Filter selects events. Its zero value selects all.
type Filter struct {
	// Since is the earliest time; zero selects all.
	Since time.Time
	// Match reports whether to select an event; nil selects all.
	Match func(Event) bool
}

func (f Filter) matches(e Event) bool {
	return (f.Since.IsZero() || !e.Time.Before(f.Since)) && (f.Match == nil || f.Match(e))
}

// skips reports whether no line of a file can match, from the name of the next file. A file
// may contain lines from before its day, if the clock was set back, and on a full disk from
// after it, but none from after the day of the next file.
func (f Filter) skips(next string) bool {
	return !f.Since.IsZero() && next < dayName(f.Since)
}

// A LineError says that a line of the log is not a readable event.
type LineError struct {
	File string
	Line int // from 1
	Err  error
}

func (e *LineError) Error() string {
	return fmt.Sprintf("%s, line %d: not an event of the log: %v; `cloche log --verify` tells what happened", e.File, e.Line, e.Err)
}

// Unwrap returns the reason.
func (e *LineError) Unwrap() error { return e.Err }

// Read returns the selected events of the log at path, oldest first. It continues after a line
// that it cannot read, which it yields as a *LineError with a zero event. A log that does not
// exist yet is empty. Read takes no lock and does not check the chain; [Verify] does.
func Read(path string, filter Filter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		root, err := openFolder(path)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer root.Close()
		names, err := dayNames(root)
		if err != nil {
			yield(Event{}, err)
			return
		}
		for i, name := range names {
			if i+1 < len(names) && filter.skips(names[i+1]) {
				continue
			}
			if !readFile(root, name, filter, yield) {
				return
			}
		}
	}
}

// readFile yields the events of one file. It returns false to stop.
func readFile(root *os.Root, name string, filter Filter, yield func(Event, error) bool) bool {
	f, err := openPlain(root, name, os.O_RDONLY)
	if err != nil {
		return yield(Event{}, err)
	}
	defer f.Close()
	lines := newLineReader(f)
	for lines.next() {
		e, err := decode(lines.line)
		switch {
		case err != nil:
			if !yield(Event{}, &LineError{File: name, Line: lines.number, Err: err}) {
				return false
			}
		case filter.matches(e) && !yield(e, nil):
			return false
		}
	}
	return lines.err == nil || yield(Event{}, lines.err)
}

// maxLine is the longest line that is kept in memory. No written line comes near it; a longer
// one counts as unreadable.
const maxLine = 4 << 20

// lineReader reads a log file line by line.
type lineReader struct {
	r        *bufio.Reader
	line     []byte // without its newline; valid until the next call
	complete bool   // it ended with a newline and was not too long
	number   int    // from 1
	offset   int64  // of the byte after the line
	err      error  // the first error other than the end
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 32<<10)}
}

// next reads a line. It returns false at the end and after an error.
func (l *lineReader) next() bool {
	l.line, l.complete = l.line[:0], true
	read := false
	for {
		part, err := l.r.ReadSlice('\n')
		l.offset += int64(len(part))
		read = read || len(part) > 0
		l.keep(part)
		switch err {
		case bufio.ErrBufferFull:
			continue
		case nil:
			l.line = bytes.TrimSuffix(l.line, []byte("\n"))
		case io.EOF:
			l.complete = false
		default:
			l.err = err
			return false
		}
		if read {
			l.number++
		}
		return read
	}
}

// keep adds a part to the line, unless the line is too long.
func (l *lineReader) keep(part []byte) {
	if len(l.line)+len(part) > maxLine {
		l.complete = false
		return
	}
	l.line = append(l.line, part...)
}

// decode decodes one line. JSON without a line number from 1 on is an error too, because every
// line of a log has one.
func decode(line []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return Event{}, err
	}
	if e.Seq == 0 {
		return Event{}, errNoSeq
	}
	return e, nil
}
