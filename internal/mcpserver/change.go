package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/policy"
)

type writeInput struct {
	Path    string `json:"path" jsonschema:"the file, relative or absolute"`
	Content string `json:"content" jsonschema:"the whole new content"`
}

type writeOutput struct {
	Bytes int `json:"bytes" jsonschema:"how much the file holds now"`
	// Replaced is how many places an edit changed.
	Replaced int `json:"replaced,omitempty" jsonschema:"how many places were replaced"`
}

// writeFile is write_file.
func (c *client) writeFile(ctx context.Context, _ call, in writeInput) (string, writeOutput, error) {
	f, err := c.findWritable(ctx, in.Path)
	if err != nil {
		return "", writeOutput{}, err
	}
	defer f.done()
	if err := f.put(ctx, in.Content); err != nil {
		return "", writeOutput{}, err
	}
	return fmt.Sprintf("wrote %d bytes to %s", len(in.Content), shortened(in.Path)), writeOutput{Bytes: len(in.Content)}, nil
}

type editInput struct {
	Path string `json:"path" jsonschema:"the file, relative or absolute"`
	Old  string `json:"old_text" jsonschema:"the text to replace, exactly as it is in the file"`
	New  string `json:"new_text" jsonschema:"the text to put in its place"`
	All  bool   `json:"replace_all,omitempty" jsonschema:"replace it wherever it occurs"`
}

// editFile is edit_file.
func (c *client) editFile(ctx context.Context, _ call, in editInput) (string, writeOutput, error) {
	var none writeOutput
	if in.Old == "" || in.Old == in.New {
		return "", none, errors.New("old_text is empty or the same as new_text; name the text to replace")
	}
	f, err := c.findWritable(ctx, in.Path)
	if err != nil {
		return "", none, err
	}
	defer f.done()
	before, err := f.content()
	if err != nil {
		return "", none, err
	}
	n := strings.Count(before, in.Old)
	switch {
	case n == 0:
		return "", none, fmt.Errorf("%s: old_text does not occur; read the file again and copy the text exactly", shortened(in.Path))
	case n > 1 && !in.All:
		return "", none, fmt.Errorf("%s: old_text occurs %d times; add lines around it until it is unique, or set replace_all", shortened(in.Path), n)
	}
	after := strings.ReplaceAll(before, in.Old, in.New)
	if err := f.put(ctx, after); err != nil {
		return "", none, err
	}
	return fmt.Sprintf("replaced %d of %s", n, shortened(in.Path)), writeOutput{Bytes: len(after), Replaced: n}, nil
}

// A writable is a file that may be written, for one call at a time.
type writable struct {
	c     *client
	s     *session
	typed string
	real  string
	done  func()
}

// findWritable finds a file that the policy lets be written, and waits until no other
// call writes it. done has to be called.
func (c *client) findWritable(ctx context.Context, typed string) (*writable, error) {
	s, real, err := c.find(ctx, typed, policy.Write)
	if err != nil {
		return nil, err
	}
	unlock, err := c.editing.lock(ctx, real)
	if err != nil {
		s.release()
		return nil, err
	}
	return &writable{c: c, s: s, typed: typed, real: real, done: func() { unlock(); s.release() }}, nil
}

// A pathLock keeps calls that change the same file apart, and no others: a file
// may take long to be written.
type pathLock struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the path is free
}

func (l *pathLock) lock(ctx context.Context, path string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		other, busy := l.held[path]
		if !busy {
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			own := make(chan struct{})
			l.held[path] = own
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, path)
				l.mu.Unlock()
				close(own)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// content is the whole file.
func (w *writable) content() (string, error) {
	f, err := w.s.OpenFile(w.real, os.O_RDONLY, 0)
	if err != nil {
		return "", fmt.Errorf("%s: %w", shortened(w.typed), plainError(err))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", shortened(w.typed), plainError(err))
	case len(b) > maxFile:
		return "", fmt.Errorf("%s is larger than %d bytes; change it with a program, by %s", shortened(w.typed), maxFile, toolRun)
	}
	return string(b), nil
}

// putTime bounds the writing of a file.
const putTime = time.Minute

// putScript writes standard input to a file and makes its folder. To open a FIFO or a
// device could wait for somebody at its other end.
const putScript = `if [ -e "$1" ] && [ ! -f "$1" ]; then echo "it is no regular file" >&2; exit 1; fi
mkdir -p -- "$2" && cat >"$1"`

// put replaces the content of the file. A command in the sandbox does that: rules
// about what is written, as those for git's own files, are kept by the sandbox
// alone, and what a command may not leave behind a client may not either.
func (w *writable) put(ctx context.Context, content string) error {
	if len(content) > maxFile {
		return fmt.Errorf("the content is larger than %d bytes; make it with a program, by %s", maxFile, toolRun)
	}
	p, err := w.s.Explain()
	if err != nil {
		return err
	}
	inside, ok := p.InsidePath(w.real)
	if !ok {
		return &hiddenError{typed: w.typed, at: w.real}
	}
	out, err := w.c.execute(ctx, w.s, job{argv: []string{"/bin/sh", "-c", putScript, "sh", inside, filepath.ToSlash(filepath.Dir(inside))}, dir: w.c.config.Workspace,
		stdin: content, limit: defaultOutput, timeout: putTime})
	if err != nil {
		return err
	}
	if out.ExitCode == 0 && !out.TimedOut && !out.Canceled {
		return nil
	}
	return putError(w.typed, out)
}

func putError(typed string, out *runOutput) error {
	lines := []string{shortened(typed) + " was not written: " + out.ending()}
	if text := strings.TrimSpace(out.Stderr); text != "" {
		lines = append(lines, text)
	}
	for i, r := range out.Refused {
		if i < maxShown {
			lines = append(lines, r.String())
		}
	}
	return errors.New(strings.Join(lines, "\n"))
}
