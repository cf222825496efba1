package hostfs

import "slices"

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
}

// Same reports whether two searches came to the same.
func (f *Found) Same(g *Found) bool {
	return slices.Equal(f.Files, g.Files) && f.Unseen == g.Unseen && f.Omitted == g.Omitted
}

// A FoundFile is a file that a search found, or a link or a pipe of that name.
type FoundFile struct {
	// Path is relative to the folder that was searched.
	Path string `json:"path"`
	// Tracked: git tracks the file, and with the content that it has now. Whoever
	// can read the repository has that content.
	Tracked bool `json:"tracked,omitempty"`
}
