package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cloche-dev/cloche/policy"
)

// Bounds of the tools about files.
const (
	maxReadBytes = 64 << 10
	maxReadLines = 2000
	maxFile      = 8 << 20 // to write or to edit
	maxEntries   = 2000
)

type readInput struct {
	Path  string `json:"path" jsonschema:"the file, relative or absolute"`
	Start int    `json:"start_line,omitempty" jsonschema:"the first line to return, counted from 1; 1 if not given"`
	Lines int    `json:"line_count,omitempty" jsonschema:"how many lines to return; 2000 if not given, which is the most"`
}

type readOutput struct {
	Text     string `json:"text" jsonschema:"the lines, as they are in the file"`
	Start    int    `json:"start_line"`
	Lines    int    `json:"line_count" jsonschema:"how many lines text has"`
	NextLine int    `json:"next_line,omitempty" jsonschema:"where to go on reading; not given at the end of the file"`
	// CutLine: the only line returned is longer than an answer may be.
	CutLine bool `json:"line_cut,omitempty" jsonschema:"the line is too long, and only its beginning was returned"`
}

// readFile is read_file.
func (c *client) readFile(ctx context.Context, _ call, in readInput) (string, readOutput, error) {
	f, err := c.openRead(ctx, in.Path)
	if err != nil {
		return "", readOutput{}, err
	}
	defer f.Close()
	if in.Start < 0 || in.Lines < 0 {
		return "", readOutput{}, errors.New("start_line and line_count cannot be negative; leave them out for the beginning of the file")
	}
	lines := in.Lines
	if lines == 0 || lines > maxReadLines {
		lines = maxReadLines
	}
	out, err := readLines(ctx, f, max(1, in.Start), lines)
	if err != nil {
		return "", readOutput{}, fmt.Errorf("%s: %w", shortened(in.Path), plainError(err))
	}
	return out.String(), *out, nil
}

// openRead opens a file or folder that the policy lets be read.
func (c *client) openRead(ctx context.Context, typed string) (*os.File, error) {
	s, real, err := c.find(ctx, typed, policy.Read)
	if err != nil {
		return nil, err
	}
	defer s.release()
	f, err := s.OpenFile(real, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shortened(typed), plainError(err))
	}
	return f, nil
}

// plainError leaves the path out of an error, which may be another one than the
// client wrote.
func plainError(err error) error {
	var pe *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such file or folder")
	case errors.Is(err, fs.ErrPermission):
		return errors.New("permission denied")
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("it is a folder; use %s", toolList)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("it is no folder; use %s", toolRead)
	case errors.As(err, &pe):
		if errno, ok := pe.Err.(syscall.Errno); ok {
			return errno
		}
		return errors.New("it cannot be used: it is no regular file or folder, or it changes at this moment")
	}
	return err
}

var errBinary = fmt.Errorf("it is no text; look at it with a program, by %s", toolRun)

// readLines reads some lines of a text.
func readLines(ctx context.Context, r io.Reader, start, count int) (*readOutput, error) {
	out := &readOutput{Start: start}
	in := bufio.NewReaderSize(r, maxReadBytes)
	if head, _ := in.Peek(8000); bytes.IndexByte(head, 0) >= 0 {
		return nil, errBinary
	}
	for range start - 1 {
		if err := skipLine(ctx, in); err == io.EOF {
			return out, nil
		} else if err != nil {
			return nil, err
		}
	}
	var text []byte
	for {
		// The buffer is as long as the answer may be: a longer line is cut.
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && out.Lines == 0:
			out.Text, out.Lines, out.CutLine, out.NextLine = asText(line), 1, true, start+1
			return out, nil
		case err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) == 0:
			out.Text = asText(text)
			return out, nil
		case out.Lines == count || len(text)+len(line) > maxReadBytes:
			out.Text, out.NextLine = asText(text), start+out.Lines
			return out, nil
		}
		text = append(text, line...)
		out.Lines++
	}
}

// skipLine reads over one line of any length.
func skipLine(ctx context.Context, in *bufio.Reader) error {
	for {
		_, err := in.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// String is the text, with where to go on.
func (o *readOutput) String() string {
	switch {
	case o.Lines == 0 && o.Start > 1:
		return fmt.Sprintf("(the file has no line %d)", o.Start)
	case o.Lines == 0:
		return "(the file is empty)"
	case o.CutLine:
		return o.Text + fmt.Sprintf("\n(line %d is longer than %d bytes and was cut; line %d may follow)", o.Start, maxReadBytes, o.NextLine)
	case o.NextLine > 0:
		return o.Text + fmt.Sprintf("\n(there is more: go on with start_line %d)", o.NextLine)
	}
	return o.Text
}

type listInput struct {
	Path string `json:"path,omitempty" jsonschema:"the folder, relative or absolute; the starting folder of commands if not given"`
}

type listEntry struct {
	Name string `json:"name"`
	Kind string `json:"kind" jsonschema:"file, folder, link, other or hidden"`
}

type listOutput struct {
	Entries []listEntry `json:"entries"`
	// More is how many were left out.
	More int `json:"more,omitempty" jsonschema:"how many names were left out"`
}

// listDirectory is list_directory.
func (c *client) listDirectory(ctx context.Context, _ call, in listInput) (string, listOutput, error) {
	typed := in.Path
	if typed == "" {
		typed = "."
	}
	s, real, err := c.find(ctx, typed, policy.Read)
	if err != nil {
		return "", listOutput{}, err
	}
	defer s.release()
	f, err := s.OpenFile(real, os.O_RDONLY, 0)
	if err != nil {
		return "", listOutput{}, fmt.Errorf("%s: %w", shortened(typed), plainError(err))
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return "", listOutput{}, fmt.Errorf("%s: %w", shortened(typed), plainError(err))
	}
	out := listOutput{Entries: make([]listEntry, 0, len(entries))}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	out.More = max(0, len(entries)-maxEntries)
	for _, e := range entries[:len(entries)-out.More] {
		out.Entries = append(out.Entries, listEntry{Name: visible(e.Name()), Kind: kindOf(s, filepath.Join(f.Name(), e.Name()), e)})
	}
	return out.String(), out, nil
}

func kindOf(s *session, path string, e fs.DirEntry) string {
	switch {
	case e.Type()&fs.ModeSymlink != 0:
		return "link" // where it leads is judged when it is followed
	case !s.IsReadable(path):
		return "hidden"
	case e.IsDir():
		return "folder"
	case e.Type().IsRegular():
		return "file"
	}
	return "other"
}

// String is one name per line: folders end in "/", links in "@".
func (o *listOutput) String() string {
	var b strings.Builder
	marks := map[string]string{"folder": "/", "link": "@", "hidden": " (hidden)", "other": " (other)"}
	for _, e := range o.Entries {
		b.WriteString(e.Name + marks[e.Kind] + "\n")
	}
	if o.More > 0 {
		fmt.Fprintf(&b, "(and %d more)\n", o.More)
	}
	if b.Len() == 0 {
		return "(the folder is empty)"
	}
	return b.String()
}
