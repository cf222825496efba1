package search

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/gitindex"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/ownfile"
)

// trackedFiles knows which of the found files git tracks unchanged. Hiding such a file would
// protect nothing, because the command has the repository, and git inside would report the file
// as changed.
type trackedFiles struct {
	// files are the real paths of the found files.
	files []string
	// repositories has the repository of each folder, or nil if there is none.
	repositories map[string]*repository
	// before are the indexes that an earlier search for the same files read.
	before *trackedFiles
}

type repository struct {
	folder string // absolute
	index  *gitindex.Index
	// file and is identify the index file that was read.
	file string
	is   fileState
}

// A fileState identifies a version of a file. Git always replaces its index as a whole.
type fileState struct {
	dev, ino   uint64
	size       int64
	ctim, mtim unix.Timespec
}

// The largest files that are read: an index (one with a million files has about 100 MB;
// above the limit all found files are hidden), an .env file, and a file named .git.
const (
	maxGitIndex   = 32 << 20
	maxTracked    = 1 << 20
	maxGitFile    = 4 << 10
	maxRepository = 64 // how many folders above a file are searched for .git
)

// markTracked marks the found files that git tracks unchanged. It returns what the next search
// can reuse.
func markTracked(root string, found *hostfs.Found, before *trackedFiles) *trackedFiles {
	t := &trackedFiles{files: make([]string, len(found.Files))}
	for i, f := range found.Files {
		t.files[i] = regularFile(path.Join(root, f.Path))
	}
	if before != nil && slices.Equal(before.files, t.files) {
		t.before = before
	}
	for i, file := range t.files {
		found.Files[i].Tracked = file != "" && t.has(file)
	}
	t.before = nil
	return t
}

// regularFile returns the real path of a regular file, or "". A pipe is not opened, because
// the program that serves it would notice.
func regularFile(p string) string {
	info, err := hostfs.OS{}.Lstat(p)
	if err == nil && info.Kind == hostfs.Symlink {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			info, err = hostfs.OS{}.Lstat(p)
		}
	}
	if err != nil || info.Kind != hostfs.File {
		return ""
	}
	return p
}

func (t *trackedFiles) has(file string) bool {
	repo := t.around(path.Dir(file), maxRepository)
	if repo == nil {
		return false
	}
	content, err := ownfile.ReadRegular(file, maxTracked)
	if err != nil {
		return false
	}
	return repo.index.Has(strings.TrimPrefix(file, strings.TrimSuffix(repo.folder, "/")+"/"), content)
}

// around returns the repository of a folder: that of the nearest folder above it with an
// entry .git.
func (t *trackedFiles) around(dir string, depth int) *repository {
	if repo, ok := t.repositories[dir]; ok {
		return repo
	}
	if t.repositories == nil {
		t.repositories = map[string]*repository{}
	}
	var repo *repository
	git := path.Join(dir, ".git")
	info, err := hostfs.OS{}.Lstat(git)
	switch {
	case err == nil && info.Kind == hostfs.Dir:
		repo = t.open(dir, git)
	case err == nil && info.Kind == hostfs.File:
		repo = t.open(dir, linkedGit(dir, git))
	case dir != "/" && depth > 0:
		repo = t.around(path.Dir(dir), depth-1)
	}
	t.repositories[dir] = repo
	return repo
}

// linkedGit returns the folder that a file named .git, as in a worktree or a submodule,
// points to.
func linkedGit(dir, file string) string {
	text, err := ownfile.ReadRegular(file, maxGitFile)
	to, ok := strings.CutPrefix(strings.TrimRight(string(text), "\n"), "gitdir: ")
	switch {
	case err != nil || !ok || to == "":
		return ""
	case path.IsAbs(to):
		return to
	}
	return path.Join(dir, to)
}

// open reads the entries for the files from the index of a repository, unless an earlier
// search did.
func (t *trackedFiles) open(dir, git string) *repository {
	if git == "" {
		return nil
	}
	repo := &repository{folder: dir, file: path.Join(git, "index")}
	var st unix.Stat_t
	if unix.Lstat(repo.file, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	repo.is = fileState{dev: st.Dev, ino: st.Ino, size: st.Size, ctim: st.Ctim, mtim: st.Mtim}
	if t.before != nil {
		if old := t.before.repositories[dir]; old != nil && old.file == repo.file && old.is == repo.is {
			return old
		}
	}
	data, err := ownfile.ReadRegular(repo.file, maxGitIndex)
	if err != nil {
		return nil
	}
	repo.index, err = gitindex.Parse(data, t.wanted(dir))
	if err != nil {
		return nil
	}
	return repo
}

// wanted returns a function that reports whether a path of a repository is one of the files. It
// is called for every tracked file, and compares the last byte first, because most differ
// there.
func (t *trackedFiles) wanted(dir string) func([]byte) bool {
	names := make(map[string]bool, len(t.files))
	var last [256]bool
	for _, f := range t.files {
		if f != "" {
			names[strings.TrimPrefix(f, strings.TrimSuffix(dir, "/")+"/")] = true
			last[f[len(f)-1]] = true
		}
	}
	return func(p []byte) bool { return last[p[len(p)-1]] && names[string(p)] }
}
