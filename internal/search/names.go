package search

import (
	"path"
	"slices"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
)

// NotSearched are the folders that are not searched: those whose content programs download or
// generate again, and the stores of version control. An .env file in them came with a package.
// Folders into which a build copies project files, such as dist and build, are searched, because
// a copy of a secret is a secret.
var NotSearched = [...]string{
	// The stores of version control systems.
	".bzr", ".git", ".hg", ".jj", ".sl", ".svn",
	// Packages that a tool fetches.
	".eggs", ".lake", ".pixi", ".pnpm-store", ".terraform", ".terragrunt-cache", ".venv", "Carthage", "Pods", "__pypackages__",
	"_deps", "_opam", "bower_components", "dist-packages", "elm-stuff", "node_modules", "site-packages", "vendor", "venv",
	// Caches that a tool generates again.
	".build", ".cache", ".dart_tool", ".gradle", ".mypy_cache", ".nox", ".parcel-cache", ".pytest_cache", ".ruff_cache", ".tox", ".turbo",
	"DerivedData", "__pycache__", "dist-newstyle", "target",
}

// A matcher recognizes the names that a search is for, and the folders that it leaves out.
// It is called for every name in a tree.
type matcher struct {
	first    [256]bool // the bytes that a matching name may begin with
	names    map[string]bool
	patterns []string
	skip     map[string]bool
}

func newMatcher(names []string) *matcher {
	m := &matcher{names: map[string]bool{}, skip: map[string]bool{}}
	for _, n := range names {
		if n == "" {
			continue
		}
		if !pathx.IsGlob(n) {
			m.names[n] = true
			m.first[n[0]] = true
			continue
		}
		m.patterns = append(m.patterns, n)
		if !pathx.IsGlob(n[:1]) && n[0] != '\\' {
			m.first[n[0]] = true
			continue
		}
		for i := range m.first {
			m.first[i] = true
		}
	}
	for _, n := range &NotSearched {
		m.skip[n] = true
	}
	return m
}

func (m *matcher) matches(name string) bool {
	if name == "" || !m.first[name[0]] {
		return false
	}
	return m.names[name] || slices.ContainsFunc(m.patterns, func(p string) bool { return Matches(p, name) })
}

// Matches reports whether the name of a file matches a name of a [hostfs.Search], which
// may be a pattern.
func Matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// In searches a file tree without an index and without limits. It is for a recorded machine
// or a test, and does not know what git tracks.
func In(tree hostfs.FS, s hostfs.Search) *hostfs.Found {
	found, match := &hostfs.Found{Root: s.Root}, newMatcher(s.Names)
	var folder func(dir, rel string)
	folder = func(dir, rel string) {
		names, err := tree.ReadDir(dir)
		if err != nil {
			return
		}
		found.Folders++
		for _, name := range names {
			info, err := tree.Lstat(path.Join(dir, name))
			switch {
			case err != nil:
			case info.Kind == hostfs.Dir && !match.skip[name]:
				folder(path.Join(dir, name), path.Join(rel, name))
			case (info.Kind == hostfs.File || info.Kind == hostfs.Symlink || info.Kind == hostfs.Other) && match.matches(name):
				found.Files = append(found.Files, hostfs.FoundFile{Path: path.Join(rel, name)})
			}
		}
	}
	folder(s.Root, "")
	arrange(found)
	return found
}
