package search

import (
	"path"
	"slices"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
)

// A LeftOut is a folder that is not searched, and why.
type LeftOut struct{ Name, Reason string }

// NotSearched returns the folders that are not searched: those that programs download or make
// again, and the stores of version control. An .env file in them came with a package. Folders
// into which a build copies files of the project, such as dist and build, are searched: a copy of
// a secret is a secret.
func NotSearched() []LeftOut { return slices.Clone(notSearched[:]) }

const (
	ofVersions = "the store of a version control system"
	ofPackages = "packages that a tool fetches"
	ofTools    = "what a tool keeps for itself and makes again"
)

var notSearched = [...]LeftOut{
	{".bzr", ofVersions}, {".git", ofVersions}, {".hg", ofVersions}, {".jj", ofVersions}, {".sl", ofVersions}, {".svn", ofVersions},
	{".eggs", ofPackages}, {".lake", ofPackages}, {".pixi", ofPackages}, {".pnpm-store", ofPackages}, {".terraform", ofPackages},
	{".terragrunt-cache", ofPackages}, {".venv", ofPackages}, {"Carthage", ofPackages}, {"Pods", ofPackages}, {"__pypackages__", ofPackages},
	{"_deps", ofPackages}, {"_opam", ofPackages}, {"bower_components", ofPackages}, {"dist-packages", ofPackages}, {"elm-stuff", ofPackages},
	{"node_modules", ofPackages}, {"site-packages", ofPackages}, {"vendor", ofPackages}, {"venv", ofPackages},
	{".build", ofTools}, {".cache", ofTools}, {".dart_tool", ofTools}, {".gradle", ofTools}, {".mypy_cache", ofTools}, {".nox", ofTools},
	{".parcel-cache", ofTools}, {".pytest_cache", ofTools}, {".ruff_cache", ofTools}, {".tox", ofTools}, {".turbo", ofTools},
	{"DerivedData", ofTools}, {"__pycache__", ofTools}, {"dist-newstyle", ofTools}, {"target", ofTools},
}

// A matcher knows the names that a search is for, and the folders that it leaves out. It is
// called for every name in a tree.
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
	for _, n := range &notSearched {
		m.skip[n.Name] = true
	}
	return m
}

func (m *matcher) matches(name string) bool {
	if name == "" || !m.first[name[0]] {
		return false
	}
	return m.names[name] || slices.ContainsFunc(m.patterns, func(p string) bool { return Matches(p, name) })
}

// Matches reports whether a name of a [hostfs.Search], which may be a pattern, stands for
// the name of a file.
func Matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// In searches a file tree without an index and without bounds: that of a recorded machine, or
// one in a test. It does not know what git tracks.
func In(tree hostfs.FS, s hostfs.Search) *hostfs.Found {
	w := &plainWalk{tree: tree, match: newMatcher(s.Names), found: &hostfs.Found{Root: s.Root}}
	w.folder(s.Root, "")
	arrange(w.found)
	return w.found
}

type plainWalk struct {
	tree  hostfs.FS
	match *matcher
	found *hostfs.Found
}

func (w *plainWalk) folder(dir, rel string) {
	names, err := w.tree.ReadDir(dir)
	if err != nil {
		return
	}
	w.found.Folders++
	for _, name := range names {
		info, err := w.tree.Lstat(path.Join(dir, name))
		switch {
		case err != nil:
		case info.Kind == host.Dir && !w.match.skip[name]:
			w.folder(path.Join(dir, name), path.Join(rel, name))
		case (info.Kind == host.File || info.Kind == host.Symlink || info.Kind == host.Other) && w.match.matches(name):
			w.found.Files = append(w.found.Files, hostfs.FoundFile{Path: path.Join(rel, name)})
		}
	}
}
