package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
)

// maxLine is the longest line that is kept in memory. None that is written
// comes near it; a longer one counts as unreadable.
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

// next reads a line; it is false at the end and after an error.
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

// keep adds a part to the line as long as it is not too long.
func (l *lineReader) keep(part []byte) {
	if len(l.line)+len(part) > maxLine {
		l.complete = false
		return
	}
	l.line = append(l.line, part...)
}

// decode reads one line. A line that is JSON but has no place in a chain is
// an error as well: every line of a log has a number from 1 on.
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
