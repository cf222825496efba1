package gitguard

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxIncludes bounds how deep included files are followed; git's own limit.
const maxIncludes = 10

// Sinks returns the paths outside of the git directory dir, with the work tree
// around it, from which the user's own settings make git run programs or read
// settings: core.hooksPath, included files, programs that are named by a path,
// and what hooks and settings that are symbolic links lead to. No guard of git
// directories sees them: `core.hooksPath = .githooks` makes an ordinary folder
// of the workspace run. A plan should protect them.
//
// It reads what the user has made before the command runs; words within a
// shell command beyond the first are not looked at.
func Sinks(dir, workTree string) ([]string, error) {
	s := sinks{dir: dir, workTree: workTree, seen: map[string]bool{}}
	s.link(filepath.Join(dir, "hooks"))
	err := errors.Join(
		s.hookLinks(),
		s.settings(filepath.Join(dir, "config"), 0),
		s.settings(filepath.Join(dir, "config.worktree"), 0),
	)
	return s.paths, err
}

type sinks struct {
	dir, workTree string
	paths         []string
	seen          map[string]bool
}

// add reports whether the path is a new one.
func (s *sinks) add(path string) bool {
	path = filepath.Clean(path)
	if s.seen[path] {
		return false
	}
	s.seen[path] = true
	if path != s.dir && !strings.HasPrefix(path, s.dir+string(filepath.Separator)) {
		s.paths = append(s.paths, path)
	}
	return true
}

// link adds where a symbolic link leads, as far as it leads anywhere.
func (s *sinks) link(path string) {
	target, err := os.Readlink(path)
	if err != nil {
		return // no link, or not there
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		target = real
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(path), target)
	}
	s.add(target)
}

func (s *sinks) hookLinks() error {
	entries, err := os.ReadDir(filepath.Join(s.dir, "hooks"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		s.link(filepath.Join(s.dir, "hooks", e.Name()))
	}
	return nil
}

// readSettings reads a file that the workspace may have brought along: a pipe, which
// nobody writes to, a device or a file without an end is an error.
func readSettings(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", name)
	}
	// Should it be replaced by a pipe just now, this does not wait.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(content) > maxConfig {
		err = fmt.Errorf("%s is longer than %d bytes", name, maxConfig)
	}
	return content, err
}

// settings adds what a file of settings names, and the files it includes.
func (s *sinks) settings(file string, depth int) error {
	content, err := readSettings(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.link(file)
	entries, err := parseConfig(content)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, e := range entries {
		err = errors.Join(err, s.setting(e, file, depth))
	}
	return err
}

func (s *sinks) setting(e entry, file string, depth int) error {
	section, _, key, _ := e.split()
	switch {
	case (section == "include" || section == "includeif") && key == "path":
		included := from(filepath.Dir(file), e.value)
		if !s.add(included) || depth >= maxIncludes {
			return nil
		}
		return s.settings(included, depth+1)
	case e.name == "core.hookspath", e.name == "core.attributesfile":
		s.add(from(s.workTree, e.value))
	case e.harmless() != nil:
		s.program(e.value)
	}
	return nil
}

// program adds the first word of a command if it is a path that git would look
// up in the work tree.
func (s *sinks) program(command string) {
	words := strings.Fields(strings.TrimLeft(command, "!"))
	if len(words) == 0 || !strings.Contains(words[0], "/") || strings.Contains(words[0], "://") {
		return
	}
	path := from(s.workTree, strings.Trim(words[0], `"'`))
	if _, err := os.Lstat(path); err == nil {
		s.add(path)
	}
}

// from is a path as git takes it from a folder; ~/ is the home folder.
func from(dir, path string) string {
	if rest, inHome := strings.CutPrefix(path, "~/"); inHome {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
