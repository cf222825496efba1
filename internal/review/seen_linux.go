package review

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/cloche-dev/cloche/internal/ownfile"
)

// seen is what a person has looked at. What a command changes after that is not applied before the person has looked again. If nobody has
// looked yet, nothing is held back.
//
// Times are ctimes of entries of upper folders, which nobody can set.
type seen struct {
	// Last is the last command that began before, and Running that it had not ended. Without a later one, nothing has changed.
	Last    int64 `json:"last"`
	Running bool  `json:"running,omitempty"`
	// All: everything that was changed until At was looked at.
	All bool  `json:"all"`
	At  int64 `json:"at"`
	// Paths has the times of single changes that were looked at, by the names of their originals.
	Paths map[string]int64 `json:"paths,omitempty"`
}

func (r *Review) seenFile() string { return filepath.Join(r.path, "seen") }

// readSeen returns nil if nobody has looked.
func (r *Review) readSeen() *seen {
	s := &seen{}
	if text, err := os.ReadFile(r.seenFile()); err != nil || json.Unmarshal(text, s) != nil {
		return nil
	}
	return s
}

// Looked notes that a person has looked at a list of changes, which is all of them if whole is set.
func (r *Review) Looked(list []*Change, whole bool) error {
	s := r.readSeen()
	running := r.lock == nil
	if whole || s == nil {
		s = &seen{Last: r.readTimes().Last, Running: running, All: whole && !running}
	}
	if s.Paths == nil {
		s.Paths = map[string]int64{}
	}
	for _, c := range list {
		if s.All && whole {
			s.At = max(s.At, c.changed())
		} else {
			s.Paths[c.seenName()] = c.changed() // a running command may have changed an earlier one of the list since
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return ownfile.WriteCache(r.seenFile(), text)
}

// isUnseen reports whether a command has changed what it made of a file after a person has looked at the review.
func (s *seen) isUnseen(c *Change, last int64) bool {
	if s == nil || last == s.Last && !s.Running {
		return false
	}
	return !(s.All && c.changed() <= s.At) && s.Paths[c.seenName()] != c.changed()
}

func (c *Change) seenName() string { return originalName(c.at.root.Path, c.at.upperPath) }

// changed is when the command made its last change of a file. A deletion that belongs to a move counts.
func (c *Change) changed() int64 {
	if c.old != nil {
		return max(c.at.changed, c.old.at.changed)
	}
	return c.at.changed
}
