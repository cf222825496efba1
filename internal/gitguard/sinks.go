package gitguard

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxIncludes bounds how deep included files are followed; git's own limit.
const maxIncludes = 10

// Found are the places from which git runs programs, or reads settings, because
// the user's own settings say so.
type Found struct {
	// Paths are absolute.
	Paths []string
	// Anywhere are relative to the work tree of every repository: the user's
	// settings for all repositories name them.
	Anywhere []string
}

// maxLinked bounds the linked worktrees, and the submodules, that are read.
const maxLinked = 256

// Sinks finds what the user's own settings make git run or read in the repository around a
// directory: core.hooksPath, included files, programs that are named by a path, and the targets of
// hooks and settings that are symbolic links. It reads the settings of the system, of the user and
// of the repository, whose git directory may be elsewhere: that of a linked worktree or a
// submodule. It reads linked worktrees and submodules of the repository, too.
//
// [Judge] sees none of these: `core.hooksPath = .githooks` makes an ordinary
// directory of the workspace run, and a file in .git that is included is an
// ordinary file. A plan should protect them.
//
// It reads what the user has made before the command runs. Of a shell command, it checks only the
// first word.
func Sinks(dir string, environ []string) (Found, error) {
	s := sinks{environ: environ, trees: []string{dir}, seen: map[string]bool{}}
	r, found, err := repositoryOf(dir)
	if found {
		s.trees = []string{r.tree}
		s.guarded = []string{r.dir, r.common}
		err = errors.Join(err, s.linkedTrees(r))
	}
	s.all = true
	for _, file := range s.userSettings() {
		err = errors.Join(err, s.settings(file, 0))
	}
	s.all = false
	if found {
		err = errors.Join(err, s.gitDirectory(r.common), s.settings(filepath.Join(r.dir, "config.worktree"), 0), s.submodules(r.common))
	}
	return s.found, err
}

type sinks struct {
	environ []string
	// trees are the work trees that relative paths begin in.
	trees []string
	// guarded are git directories, whose hooks and config are guarded as such.
	guarded []string
	// all: the settings are for every repository.
	all   bool
	found Found
	seen  map[string]bool
	// linked counts worktrees and submodules.
	linked int
}

// A located is where the repository of a work tree is.
type located struct {
	tree string
	// dir is the git directory, and common the one that linked worktrees share.
	dir, common string
}

// repositoryOf finds the repository around a directory.
func repositoryOf(dir string) (r located, found bool, err error) {
	for at := dir; ; at = filepath.Dir(at) {
		name := filepath.Join(at, ".git")
		there, isDir := exists(name)
		switch {
		case isDir:
			git, err := filepath.EvalSymlinks(name)
			if err != nil {
				return r, false, err
			}
			return openRepository(at, git)
		case there:
			git, err := pointer(name, "gitdir: ")
			if err != nil {
				return r, false, err
			}
			return openRepository(at, git)
		case at == filepath.Dir(at):
			return r, false, nil
		}
	}
}

// exists reports whether there is something at a path, and whether it is a directory.
func exists(path string) (there, isDir bool) {
	info, err := os.Stat(path)
	return err == nil, err == nil && info.IsDir()
}

func openRepository(tree, dir string) (located, bool, error) {
	r := located{tree: tree, dir: dir, common: dir}
	common, err := pointer(filepath.Join(dir, "commondir"), "")
	switch {
	case err == nil:
		r.common = common
	case !errors.Is(err, fs.ErrNotExist):
		return r, true, err
	}
	return r, true, nil
}

// pointer reads a file that names another one, relative to where it is.
func pointer(file, prefix string) (string, error) {
	content, err := readSettings(file)
	if err != nil {
		return "", err
	}
	text, ok := strings.CutPrefix(strings.TrimRight(string(content), "\r\n"), prefix)
	if !ok || text == "" {
		return "", fmt.Errorf("%s does not begin with %q", file, prefix)
	}
	if !filepath.IsAbs(text) {
		text = filepath.Join(filepath.Dir(file), text)
	}
	return filepath.Clean(text), nil
}

// linkedTrees adds the other work trees of a repository.
func (s *sinks) linkedTrees(r located) error {
	entries, err := readDir(filepath.Join(r.common, "worktrees"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if s.linked++; s.linked > maxLinked {
			return fmt.Errorf("%s has more than %d worktrees", r.common, maxLinked)
		}
		dir := filepath.Join(r.common, "worktrees", e.Name())
		s.guarded = append(s.guarded, dir)
		if file, err := pointer(filepath.Join(dir, "gitdir"), ""); err == nil {
			s.trees = append(s.trees, filepath.Dir(file))
		}
	}
	if r.dir != r.common { // this is one of them: the main one is around the common directory
		s.trees = append(s.trees, filepath.Dir(r.common))
	}
	return nil
}

// submodules adds what those of a git directory run.
func (s *sinks) submodules(dir string) error {
	return s.modules(filepath.Join(dir, "modules"))
}

// modules looks for git directories below a directory: the name of a submodule
// may have slashes.
func (s *sinks) modules(dir string) error {
	entries, err := readDir(dir)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if s.linked++; s.linked > maxLinked {
			return fmt.Errorf("%s has more than %d submodules", dir, maxLinked)
		}
		module := filepath.Join(dir, e.Name())
		if _, missing := os.Lstat(filepath.Join(module, "HEAD")); missing != nil {
			err = errors.Join(err, s.modules(module))
			continue
		}
		own := sinks{environ: s.environ, seen: s.seen, guarded: append(s.guarded, module), linked: s.linked}
		if tree, ok := own.workTreeOf(module); ok {
			own.trees = []string{tree}
		}
		err = errors.Join(err, own.gitDirectory(module), own.submodules(module))
		s.found.Paths = append(s.found.Paths, own.found.Paths...)
		s.linked = own.linked
	}
	return err
}

// workTreeOf is the work tree that a submodule's settings name.
func (s *sinks) workTreeOf(dir string) (string, bool) {
	content, err := readSettings(filepath.Join(dir, "config"))
	if err != nil {
		return "", false
	}
	entries, _ := parseConfig(content)
	for _, e := range entries {
		if e.name == "core.worktree" {
			return s.from(dir, e.value), true
		}
	}
	return "", false
}

// gitDirectory adds what the hooks and settings of a git directory lead to.
func (s *sinks) gitDirectory(dir string) error {
	s.link(filepath.Join(dir, "hooks"))
	return errors.Join(s.hookLinks(dir), s.settings(filepath.Join(dir, "config"), 0), s.settings(filepath.Join(dir, "config.worktree"), 0))
}

// userSettings are the files with settings for all repositories. Agents start their commands with
// /dev/null in place of a file. That says nothing about the git that a person runs outside, so
// the usual files count.
func (s *sinks) userSettings() []string {
	var files []string
	if system := s.variable("GIT_CONFIG_SYSTEM"); system != "" && system != os.DevNull {
		files = append(files, system)
	} else if s.variable("GIT_CONFIG_NOSYSTEM") == "" {
		files = append(files, "/etc/gitconfig")
	}
	if global := s.variable("GIT_CONFIG_GLOBAL"); global != "" && global != os.DevNull {
		return append(files, global)
	}
	home := s.variable("HOME")
	if own := s.variable("XDG_CONFIG_HOME"); own != "" {
		files = append(files, filepath.Join(own, "git/config"))
	} else if home != "" {
		files = append(files, filepath.Join(home, ".config/git/config"))
	}
	if home != "" {
		files = append(files, filepath.Join(home, ".gitconfig"))
	}
	return files
}

// variable is the value of an environment variable.
func (s *sinks) variable(name string) string {
	value := ""
	for _, v := range s.environ {
		if rest, ok := strings.CutPrefix(v, name+"="); ok {
			value = rest
		}
	}
	return value
}

// add reports whether the path is a new one. What is guarded as a part of a git
// directory needs no rule.
func (s *sinks) add(path string) bool {
	path = filepath.Clean(path)
	if s.seen[path] {
		return false
	}
	s.seen[path] = true
	for _, dir := range s.guarded {
		hooks := filepath.Join(dir, "hooks")
		if path == hooks || strings.HasPrefix(path, hooks+string(filepath.Separator)) || path == filepath.Join(dir, "config") || path == filepath.Join(dir, "config.worktree") {
			return true
		}
	}
	s.found.Paths = append(s.found.Paths, path)
	return true
}

// addInTrees adds a path that git takes from the top of a work tree.
func (s *sinks) addInTrees(path string) {
	for _, tree := range s.trees {
		s.add(s.from(tree, path))
	}
	clean := filepath.Clean(path)
	if s.all && filepath.IsLocal(clean) && clean != "." && !strings.HasPrefix(path, "~") && !slices.Contains(s.found.Anywhere, clean) {
		s.found.Anywhere = append(s.found.Anywhere, clean)
	}
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

func (s *sinks) hookLinks(dir string) error {
	entries, err := readDir(filepath.Join(dir, "hooks"))
	for _, e := range entries {
		s.link(filepath.Join(dir, "hooks", e.Name()))
	}
	return err
}

// readDir lists a directory, which may be missing.
func readDir(dir string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	return entries, err
}

// readSettings reads a file that may come with the workspace. A pipe, which nobody writes to, a
// device, or a file without an end is an error.
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
		included := s.from(filepath.Dir(file), e.value)
		if !s.add(included) || depth >= maxIncludes {
			return nil
		}
		return s.settings(included, depth+1)
	case e.name == "core.hookspath", e.name == "core.attributesfile":
		s.addInTrees(e.value)
	case e.harmless() != nil:
		s.program(e.value)
	}
	return nil
}

// program adds the first word of a command if it is a path that git would look
// up in a work tree. A word with a slash may be something else, unless there is
// such a file or it is written as a path.
func (s *sinks) program(command string) {
	words := strings.Fields(strings.TrimLeft(command, "!"))
	if len(words) == 0 || !strings.Contains(words[0], "/") || strings.Contains(words[0], "://") {
		return
	}
	word := strings.Trim(words[0], `"'`)
	written := strings.HasPrefix(word, "./") || strings.HasPrefix(word, "../") || filepath.IsAbs(word)
	for _, tree := range s.trees {
		path := s.from(tree, word)
		if _, err := os.Lstat(path); err == nil || written {
			s.add(path)
		}
	}
}

// from is a path as git takes it from a directory; ~/ is the home directory.
func (s *sinks) from(dir, path string) string {
	if rest, inHome := strings.CutPrefix(path, "~/"); inHome {
		if home := s.variable("HOME"); home != "" {
			return filepath.Join(home, rest)
		}
	}
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
