package host

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/internal/pathx"
)

// A Search is for files with certain names, at any depth of a folder.
type Search struct {
	// Root is the folder, absolute. Links in its own path are followed, links
	// below it are not.
	Root string
	// Names are the names of files; each may hold *, ? and [a-z].
	Names []string
}

// Found is what a [Search] came to.
type Found struct {
	// Root is that of the search.
	Root string `json:"root"`
	// Files are sorted by path.
	Files []FoundFile `json:"files,omitempty"`
	// Folders is how many folders are known, Unseen how many of those that were
	// come across were not looked into: a search has a bound.
	Folders int `json:"folders"`
	Unseen  int `json:"unseen,omitempty"`
	// Omitted is how many files were found and are not among Files.
	Omitted int `json:"omitted,omitempty"`
	// Slow: it was time, and not the number of folders, that ended the search. The
	// next one goes on from there if there is an index.
	Slow bool `json:"slow,omitempty"`
	// Later is how many of Folders were not looked at again for this search, because
	// a start would wait for that: what is known of them is of the time Looked.
	Later  int       `json:"later,omitempty"`
	Looked time.Time `json:"looked,omitzero"`
}

// Same reports whether two searches came to the same.
func (f *Found) Same(g *Found) bool {
	return slices.Equal(f.Files, g.Files) && f.Unseen == g.Unseen && f.Omitted == g.Omitted && f.Later == g.Later
}

// A FoundFile is a file that a search found, or a link or a pipe of that name.
type FoundFile struct {
	// Path is relative to the folder that was searched.
	Path string `json:"path"`
	// Tracked: git tracks the file, and with the content that it has now. Whoever
	// can read the repository has that content.
	Tracked bool `json:"tracked,omitempty"`
}

// maxFoundFiles is how many files a search names. Each of them becomes a mount.
const maxFoundFiles = 1000

// A LeftOut is a folder that no search looks into, and why.
type LeftOut struct{ Name, Reason string }

// NotSearched returns the folders that no search looks into: what programs fetch
// and make again, and the stores of version control. A file of variables that lies
// there came with a package. Folders into which a build copies files of the
// project, such as dist and build, are searched: a copy of a secret is one.
func NotSearched() []LeftOut { return slices.Clone(notSearched[:]) }

// IsNotSearched reports whether folders of a name are among [NotSearched].
func IsNotSearched(name string) bool {
	return slices.ContainsFunc(notSearched[:], func(l LeftOut) bool { return l.Name == name })
}

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

// A nameMatcher tells the names that a search is for, and the folders that it
// leaves out. It is asked about every name in a tree.
type nameMatcher struct {
	first    [256]bool // the bytes that a name of interest may begin with
	names    map[string]bool
	patterns []string
	skip     map[string]bool
}

func newNameMatcher(names []string) *nameMatcher {
	m := &nameMatcher{names: map[string]bool{}, skip: map[string]bool{}}
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

func (m *nameMatcher) matches(name string) bool {
	if name == "" || !m.first[name[0]] {
		return false
	}
	return m.names[name] || slices.ContainsFunc(m.patterns, func(p string) bool { return MatchesName(p, name) })
}

// MatchesName reports whether a name of a [Search], which may be a pattern,
// stands for the name of a file.
func MatchesName(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// FindIn searches a file tree without an index and without a bound: a recorded
// machine's, or any in a test. It does not know what git tracks.
func FindIn(tree FS, s Search) *Found {
	w := &plainWalk{tree: tree, match: newNameMatcher(s.Names), found: &Found{Root: s.Root}}
	w.folder(s.Root, "")
	w.found.sort()
	return w.found
}

type plainWalk struct {
	tree  FS
	match *nameMatcher
	found *Found
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
		case info.Kind == Dir && !w.match.skip[name]:
			w.folder(path.Join(dir, name), path.Join(rel, name))
		case (info.Kind == File || info.Kind == Symlink || info.Kind == Other) && w.match.matches(name):
			w.found.Files = append(w.found.Files, FoundFile{Path: path.Join(rel, name)})
		}
	}
}

// sort puts the files in order and leaves out those that are too many.
func (f *Found) sort() {
	slices.SortFunc(f.Files, func(a, b FoundFile) int { return strings.Compare(a.Path, b.Path) })
	if n := len(f.Files) - maxFoundFiles; n > 0 {
		f.Omitted += n
		f.Files = f.Files[:maxFoundFiles]
	}
}
