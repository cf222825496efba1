package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
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
	c.editing.Lock()
	defer c.editing.Unlock()
	if err := c.put(ctx, in.Path, in.Content); err != nil {
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
	c.editing.Lock()
	defer c.editing.Unlock()
	before, err := c.content(ctx, in.Path)
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
	if err := c.put(ctx, in.Path, after); err != nil {
		return "", none, err
	}
	return fmt.Sprintf("replaced %d of %s", n, shortened(in.Path)), writeOutput{Bytes: len(after), Replaced: n}, nil
}

// content is a whole file.
func (c *client) content(ctx context.Context, typed string) (string, error) {
	f, err := c.openRead(ctx, typed)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", shortened(typed), plainError(err))
	case len(b) > maxFile:
		return "", fmt.Errorf("%s is larger than %d bytes; change it with a program, by %s", shortened(typed), maxFile, toolRun)
	}
	return string(b), nil
}

// putTime bounds the writing of a file.
const putTime = time.Minute

// putScript writes standard input to a file and makes its folder.
const putScript = `mkdir -p -- "$2" && cat >"$1"`

// put replaces the content of a file. A command in the sandbox does that: rules
// about what is written, as those for git's own files, are kept by the sandbox
// alone, and what a command may not leave behind a client may not either.
func (c *client) put(ctx context.Context, typed, content string) error {
	if len(content) > maxFile {
		return fmt.Errorf("the content is larger than %d bytes; make it with a program, by %s", maxFile, toolRun)
	}
	s, real, err := c.find(ctx, typed, policy.Write)
	if err != nil {
		return err
	}
	defer s.release()
	inside, ok := s.Explain().InsidePath(real)
	if !ok {
		return &hiddenError{typed: typed, at: real}
	}
	out, err := c.execute(ctx, s, job{argv: []string{"/bin/sh", "-c", putScript, "sh", inside, filepath.ToSlash(filepath.Dir(inside))}, dir: c.config.Workspace,
		stdin: content, limit: defaultOutput, timeout: putTime})
	if err != nil {
		return err
	}
	if out.ExitCode == 0 && !out.TimedOut && !out.Canceled {
		return nil
	}
	return putError(typed, out)
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
