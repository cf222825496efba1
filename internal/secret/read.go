package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/cloche-dev/cloche/policy"
)

const (
	// maxValue bounds a value. Servers refuse header fields that are longer.
	maxValue = 16 << 10
	// readTime is how long a source may take. A keyring or a program may ask a person to unlock it.
	readTime = time.Minute
)

// A Reader reads values.
type Reader struct {
	// Getenv returns a variable of cloche's own environment.
	Getenv func(name string) (string, bool)
	// Expand returns the file that a path of a policy is about.
	Expand func(path string) (string, error)
	// Environ is the environment of programs.
	Environ []string
	// Check, unless nil, refuses a program that a command could have changed. It gets the
	// program's absolute path.
	Check func(program string) error
	// Time is how long one source may take; 0 is a minute.
	Time time.Duration
}

// An Error says that a secret has no value. It has no part of a value.
type Error struct {
	Name   string
	Causes []error
}

// Error names the secret, and for each source why it gave nothing.
func (e *Error) Error() string {
	text := "the secret " + e.Name + " has no value"
	for i, cause := range e.Causes {
		separator := ", and "
		if i == 0 {
			separator = ": "
		}
		text += separator + cause.Error()
	}
	return text
}

// Unwrap returns what was wrong with each source.
func (e *Error) Unwrap() []error { return e.Causes }

// Read returns the value of a secret from the first source that has one. The caller clears it.
func (r *Reader) Read(ctx context.Context, name string, sources []policy.Source) ([]byte, error) {
	e := &Error{Name: name}
	for _, s := range sources {
		value, err := r.source(ctx, s)
		if err == nil {
			return value, nil
		}
		e.Causes = append(e.Causes, fmt.Errorf("%s %w", s, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, e
}

// Placeholders reads each secret once, for the shape of its placeholder. An optional secret that
// has no value is left out; each other is an error.
func (r *Reader) Placeholders(ctx context.Context, secrets []policy.Secret) (map[string]string, error) {
	out := map[string]string{}
	var errs []error
	for i := range secrets {
		s := &secrets[i]
		value, err := r.Read(ctx, s.Name, s.Sources())
		switch {
		case err == nil:
			out[s.Name] = Placeholder(value)
			clear(value)
		case !s.Optional:
			errs = append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

// source reads one source.
func (r *Reader) source(ctx context.Context, s policy.Source) (value []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeOr(r.Time))
	defer cancel()
	switch s.Kind {
	case policy.SourceEnv:
		text, ok := r.Getenv(s.Name)
		if !ok {
			return nil, errors.New("is not set")
		}
		value = []byte(text)
	case policy.SourceFile:
		value, err = r.file(s.Name)
	case policy.SourceCommand:
		value, err = r.program(ctx, s.Args)
	case policy.SourcePass:
		value, err = r.program(ctx, []string{"pass", "show", "--", s.Name})
		value = firstLine(value)
	case policy.SourceKeyring:
		value, err = r.keyring(ctx, s.Attributes)
	default:
		err = errors.New("is of an unknown kind")
	}
	if ctx.Err() != nil && err != nil {
		err = errors.New("did not answer in time")
	}
	if err != nil {
		clear(value)
		return nil, err
	}
	return checked(value)
}

func timeOr(d time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return readTime
}

// checked drops the newline at the end of a value, and refuses a value that cannot stand in a
// header field.
func checked(value []byte) ([]byte, error) {
	trimmed := bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
	var err error
	switch {
	case len(trimmed) == 0:
		err = errors.New("is empty")
	case len(trimmed) > maxValue:
		err = fmt.Errorf("gives more than %d bytes", maxValue)
	case bytes.ContainsFunc(trimmed, func(c rune) bool { return c < ' ' || c == 0x7f }):
		err = errors.New("gives several lines, or control characters")
	}
	if err != nil {
		clear(value)
		return nil, err
	}
	return trimmed, nil
}

// firstLine drops all but the first line, which is where pass has the password.
func firstLine(value []byte) []byte {
	at := bytes.IndexByte(value, '\n')
	if at < 0 {
		return value
	}
	clear(value[at:])
	return value[:at]
}

// file reads a regular file. A pipe could block, and be empty the next time.
func (r *Reader) file(name string) ([]byte, error) {
	path, err := r.Expand(name)
	if err != nil {
		return nil, fmt.Errorf("has no path: %w", err)
	}
	f, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be opened: %w", bare(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	b := newBuffer()
	if _, err := io.Copy(b, f); err != nil {
		b.clear()
		return nil, fmt.Errorf("cannot be read: %w", bare(err))
	}
	return b.take(), nil
}

// program runs a program and returns what it prints. No shell is involved. It runs in the root
// folder: a folder that commands can write may have settings for it.
func (r *Reader) program(ctx context.Context, args []string) ([]byte, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return nil, fmt.Errorf("cannot be started: %w", bare(err))
	}
	if r.Check != nil {
		if err := r.Check(path); err != nil {
			return nil, fmt.Errorf("is not started: %w", err)
		}
	}
	b := newBuffer()
	c := exec.CommandContext(ctx, path, args[1:]...)
	c.Args[0] = args[0]
	c.Env, c.Dir, c.Stdout, c.WaitDelay = r.Environ, string(os.PathSeparator), b, time.Second
	ownGroup(c)
	if err := c.Run(); err != nil {
		b.clear()
		if code := c.ProcessState.ExitCode(); code > 0 {
			return nil, fmt.Errorf("ends with status %d; run it to see why", code)
		}
		return nil, fmt.Errorf("fails: %w", bare(err))
	}
	return b.take(), nil
}

// bare returns an error without the path that the caller names already.
func bare(err error) error {
	var inPath *os.PathError
	var inProgram *exec.Error
	switch {
	case errors.As(err, &inPath):
		return inPath.Err
	case errors.As(err, &inProgram):
		return inProgram.Err
	}
	return err
}

// A buffer takes a value without copying it while it grows, so that no copies are left behind.
type buffer struct{ bytes []byte }

func newBuffer() *buffer { return &buffer{make([]byte, 0, maxValue+3)} } // with a newline, and one byte too many

// Write takes what fits, and drops the rest: checked refuses a value that is too long. Unlike other
// writers it clears what it was given, a buffer of io.Copy.
func (b *buffer) Write(p []byte) (int, error) {
	n := min(len(p), cap(b.bytes)-len(b.bytes))
	b.bytes = append(b.bytes, p[:n]...)
	clear(p)
	return len(p), nil
}

func (b *buffer) clear() { clear(b.bytes[:cap(b.bytes)]) }

// take returns the value in memory of its own size.
func (b *buffer) take() []byte {
	value := bytes.Clone(b.bytes)
	b.clear()
	return value
}
