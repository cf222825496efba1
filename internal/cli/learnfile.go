package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/config"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/policy"
)

// learnOutput is where the policy goes. The folder is opened before the command
// runs: a command that puts a link in its place later would otherwise choose where
// cloche, which is not confined, writes.
type learnOutput struct {
	root *os.Root // nil: standard output
	// path is the file, base the folder that relative paths in it start from.
	path, name, base string
	force            bool
}

func openLearnOutput(f *learnFlags, workspace string) (*learnOutput, error) {
	file := filepath.Join(workspace, config.ProjectFileName)
	switch f.output {
	case "-":
		return &learnOutput{base: filepath.ToSlash(workspace)}, nil
	case "":
	default:
		var err error
		if file, err = filepath.Abs(f.output); err != nil {
			return nil, fmt.Errorf("--output %s: %w", f.output, err)
		}
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("learn: write %s: %w; name a folder that exists", file, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("learn: write %s: %w", file, err)
	}
	o := &learnOutput{root: root, name: filepath.Base(file), path: filepath.Join(dir, filepath.Base(file)), base: filepath.ToSlash(dir), force: f.force}
	info, err := root.Lstat(o.name)
	switch {
	case err == nil && (!f.force || info.IsDir()):
		err = fmt.Errorf("learn: %s exists; name another with --output, or replace it with --force", o.path)
	case errors.Is(err, os.ErrNotExist):
		err = nil
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

func (o *learnOutput) close() {
	if o.root != nil {
		_ = o.root.Close() // it was only used to name files
	}
}

// commandOutput is where the command's own output goes: standard output, unless
// the policy goes there.
func (o *learnOutput) commandOutput(a *app) io.Writer {
	if o.root == nil {
		return a.err
	}
	return a.out
}

// write writes the policy, and says what to do with it.
func (l *lesson) write(runErr error) error {
	l.file.Outcome = outcome(runErr)
	text, err := l.file.Text()
	if err != nil {
		return err
	}
	if _, err := policy.ParseIn(l.output.path, l.output.base, []byte(text)); err != nil {
		return fmt.Errorf("learn: the policy cannot be read back: %w", err)
	}
	if l.output.root == nil {
		_, err := io.WriteString(l.out, text)
		return err
	}
	if err := l.output.save(text); err != nil {
		return err
	}
	l.sayWritten()
	return nil
}

func outcome(err error) string {
	e, ran := errors.AsType[*cloche.ExitError](err)
	switch {
	case err == nil:
		return "The last run ended with status 0."
	case ran:
		return "The last run failed: " + e.Error() + "."
	}
	return "The last run failed."
}

// save writes the file whole or not at all. Without --force it is only made if
// nothing is there, also if something has come into being since the start.
func (o *learnOutput) save(text string) error {
	name := o.name
	if o.force {
		name = ".cloche-learn-" + rand.Text()
	}
	f, err := o.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("learn: write %s: %w", o.path, err)
	}
	_, err = io.WriteString(f, text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil && o.force {
		err = o.root.Rename(name, o.name)
	}
	if err != nil {
		_ = o.root.Remove(name) // half a policy is worse than none
		return fmt.Errorf("learn: write %s: %w", o.path, err)
	}
	return nil
}

func (l *lesson) sayWritten() {
	l.words.say(green, "learn: wrote "+l.output.path)
	for _, n := range l.file.Proposed {
		if n.Missing {
			l.words.warn("learn: make the folder first: mkdir -p " + runoption.Word(n.Path))
		}
	}
	if l.output.name == config.ProjectFileName {
		l.words.say(green, "learn: read it, then trust it: cloche policy trust "+runoption.Word(l.output.path))
		return
	}
	l.words.say(green, "learn: read it, then use it: cloche run --policy "+runoption.Word(l.output.path)+" -- "+commandLine(l.argv))
}

// startSettings returns what the flags say, with absolute paths, so that they mean the
// same in a file that is elsewhere.
func (s *sessionFlags) startSettings() ([]policy.Setting, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("the working folder is not known: %w; change to a folder that exists", err)
	}
	d, err := s.commandDocument(filepath.ToSlash(cwd))
	if d == nil || err != nil {
		return nil, err
	}
	return d.Settings()
}
