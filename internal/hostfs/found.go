package hostfs

import "slices"

// A Search is a search for files with certain names, at any depth of a folder.
type Search struct {
	// Root is the folder to search, absolute. Links in its own path are followed, links below
	// it are not.
	Root string
	// Names are the names of files; each may contain *, ? and [a-z].
	Names []string
}

// Found is the result of a [Search].
type Found struct {
	// Root is the folder that was searched.
	Root string `json:"root"`
	// Files are sorted by path.
	Files []FoundFile `json:"files,omitempty"`
	// Folders is the number of known folders. Unseen is how many folders were found but not
	// searched, because a search has a limit.
	Folders int `json:"folders"`
	Unseen  int `json:"unseen,omitempty"`
	// Omitted is how many files were found and are not in Files.
	Omitted int `json:"omitted,omitempty"`
	// Slow: a time limit ended the search, not the number of folders. If there is an index,
	// the next search continues from there.
	Slow bool `json:"slow,omitempty"`
}

// Same reports whether two searches have the same result.
func (f *Found) Same(g *Found) bool {
	return slices.Equal(f.Files, g.Files) && f.Unseen == g.Unseen && f.Omitted == g.Omitted
}

// A FoundFile is a file that a search found, or a link or pipe with such a name.
type FoundFile struct {
	// Path is relative to the folder that was searched.
	Path string `json:"path"`
	// Tracked: git tracks the file with its current content. Everybody who can read the
	// repository has that content.
	Tracked bool `json:"tracked,omitempty"`
}
