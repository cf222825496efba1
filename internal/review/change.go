package review

import (
	"path"
	"strings"
	"unicode/utf8"
)

// Kind is what happened to a name.
type Kind string

// The kinds of changes. A file that became a folder, or the other way round, is Changed.
const (
	Added   Kind = "added"
	Changed Kind = "changed"
	Deleted Kind = "deleted"
	Renamed Kind = "renamed"
	Mode    Kind = "mode"
)

// The types of files.
const (
	File   = "file"
	Folder = "folder"
	Link   = "link"
	Pipe   = "pipe"
	Socket = "socket"
	Device = "device"
)

// A Change is one name that a command left otherwise than it was on the host.
type Change struct {
	// Root and Path are the root of the layer and the path below it. If the root is a file, they are
	// its folder and its name.
	Root string `json:"root"`
	Path string `json:"path"`
	// Bytes is Path where that is no text, since JSON cannot carry it.
	Bytes []byte `json:"bytes,omitempty"`
	Kind  Kind   `json:"kind"`
	Type  string `json:"type"`
	// Was is the type before, if it was another one.
	Was string `json:"was,omitempty"`
	// Size is that of the new file, OldSize that of the host's.
	Size    int64 `json:"size"`
	OldSize int64 `json:"old_size"`
	// Mode and OldMode are the permissions, without set-id bits. They are 0 where there is no file.
	Mode    uint32 `json:"mode,omitempty"`
	OldMode uint32 `json:"old_mode,omitempty"`
	// From is the path that a Renamed file had. It is below the same root.
	From string `json:"from,omitempty"`
	// Conflict says why the host's version is not the one that the command started from.
	Conflict string `json:"conflict,omitempty"`
	// Mergeable: a copy is kept of what the command began with, so a conflict can be merged.
	Mergeable bool `json:"mergeable,omitempty"`
	// Overlaps is in how many places an apply that merges found both sides changed, and NotMerged why it could not try.
	Overlaps  int    `json:"overlaps,omitempty"`
	NotMerged string `json:"not_merged,omitempty"`
	// Protected says why the file needs its own yes: a program outside would execute it.
	Protected string `json:"protected,omitempty"`
	// Unit is the git directory that the file is in. It is applied and discarded as a whole.
	Unit string `json:"unit,omitempty"`
	// NotCarried says why the change cannot be applied at all.
	NotCarried string `json:"not_carried,omitempty"`
	// Notes are what is lost if it is applied, and what is odd about it.
	Notes []string `json:"notes,omitempty"`

	at *place
	// old is the deletion that belongs to a move.
	old *Change
	// by is the change of a folder into something else, which deletes what was in it.
	by *Change
	// merged: it is applied as a merge with the host's file.
	merged bool
}

// Abs returns the path on the host.
func (c *Change) Abs() string { return path.Join(c.Root, c.Path) }

// Whole is the same for changes that are applied, left and discarded only together: those of a git directory, and a folder that became
// something else with the deletions of what was in it.
func (c *Change) Whole() string {
	switch {
	case c.Unit != "":
		return path.Join(c.Root, c.Unit)
	case c.by != nil:
		return c.by.Abs()
	}
	return c.Abs()
}

// setPath sets the path.
func (c *Change) setPath(p string) {
	c.Path = p
	if !utf8.ValidString(p) {
		c.Bytes = []byte(p)
	}
}

// gitUnit returns the path up to the component .git, or "".
func gitUnit(p string) string {
	at := 0
	for part := range strings.SplitSeq(p, "/") {
		at += len(part)
		if strings.EqualFold(part, ".git") {
			return p[:at]
		}
		at++
	}
	return ""
}

// gitRuns reports whether git runs, or reads settings from, a path below a git directory.
func gitRuns(rel string) bool {
	parts := strings.Split(strings.ToLower(rel), "/")
	switch last := parts[len(parts)-1]; last {
	case "config", "config.worktree", "commondir", "gitdir":
		return true
	case "attributes":
		return len(parts) > 1 && parts[len(parts)-2] == "info"
	}
	for i, part := range parts {
		// A branch may be called hooks: refs/heads/hooks/x is no hook.
		if part == "hooks" && (i == 0 || parts[0] == "modules" || parts[0] == "worktrees") {
			return true
		}
	}
	return false
}
