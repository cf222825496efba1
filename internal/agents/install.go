package agents

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/ownfile"
)

// FileName is the record of what was installed, in cloche's data folder; backupDir has the
// files as they were.
const (
	FileName  = "agents.json"
	backupDir = "agents"
)

// A Record is one file that install changed.
type Record struct {
	Agent string `json:"agent"`
	Scope Scope  `json:"scope"`
	// Project is the folder of the scope project.
	Project string `json:"project,omitempty"`
	Cloche  string `json:"cloche"`
	File    string `json:"file"`
	// Sum is of the file as it was written. Backup names the copy of what was there
	// before, whose mode was Mode; it is empty if there was no file.
	Sum    string      `json:"sha256"`
	Backup string      `json:"backup,omitempty"`
	Mode   fs.FileMode `json:"mode,omitempty"`
	// Made are the folders that were made for the file, the innermost first.
	Made []string `json:"made,omitempty"`
	// Edits and Before are the changes, and what keys had before. A file that is cloche's own has none.
	Edits    []Edit   `json:"edits,omitempty"`
	Before   []string `json:"before,omitempty"`
	Comments bool     `json:"comments,omitempty"`
}

// A Store is the record of what was installed.
type Store struct {
	dir  string
	list ownfile.List[Record]
}

// Open returns the store of a data folder. It reads nothing yet.
func Open(dataDir string) *Store {
	s := &Store{dir: filepath.Join(dataDir, backupDir), list: ownfile.List[Record]{What: "record of installed agents", Field: "installed", Lost: "remove the file, and cloche's entries from the agents' settings by hand"}}
	if dataDir != "" {
		s.list.Path = filepath.Join(dataDir, FileName)
	}
	return s
}

// Installed returns what was installed of an agent that counts in a project: for the user, for
// the system, and for the project.
func (s *Store) Installed(agent, project string) ([]Record, error) {
	all, err := s.list.Read()
	return slices.DeleteFunc(all, func(r Record) bool {
		return r.Agent != agent || r.Project != "" && r.Project != project
	}), err
}

// A Change is what install does to a file.
type Change struct {
	Part
	Old, New []byte
	// Exists: the file was there. Done: it has the entries already.
	Exists, Done bool
	mode         fs.FileMode
	before       []string
}

// Changes returns what install would do. Nothing is written.
func (a *Agent) Changes(p *Places) ([]Change, error) {
	parts, err := a.Parts(p)
	if err != nil {
		return nil, err
	}
	var out []Change
	for _, part := range parts {
		if p.Scope == Project {
			if err := noLinks(p.Project, part.File); err != nil {
				return nil, err
			}
		} else if real, err := filepath.EvalSymlinks(part.File); err == nil {
			part.File = real // the file itself is changed, not the link to it
		}
		c := Change{Part: part, mode: 0o644}
		if p.Scope == User {
			c.mode = 0o600
		}
		content, err := ownfile.Read(part.File)
		switch {
		case err == nil:
			c.Old, c.Exists = content.Data, true
			if info, err := os.Stat(part.File); err == nil {
				c.mode = info.Mode().Perm()
			}
		case !errors.Is(err, fs.ErrNotExist):
			return nil, ownfile.Describe("settings", part.File, err)
		}
		if err := c.make(); err != nil {
			return nil, fmt.Errorf("%s: %w; nothing was changed", part.File, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// System returns what is installed for the system. It is found in the files themselves: the record
// is root's.
func (a *Agent) System(p *Places) []Record {
	of := *p
	of.Scope = System
	changes, err := a.Changes(&of)
	if err != nil || slices.ContainsFunc(changes, func(c Change) bool { return !c.Done }) {
		return nil
	}
	var out []Record
	for _, c := range changes {
		out = append(out, Record{Agent: a.Name, Scope: System, Cloche: p.Cloche, File: c.File, Sum: ownfile.Sum(c.Old), Edits: c.Edits, Comments: c.Comments})
	}
	return out
}

// noLinks refuses links below a project: whoever filled it could have them lead anywhere.
func noLinks(project, file string) error {
	for dir := file; len(dir) > len(project); dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a symbolic link, and might lead out of the project; nothing was changed; replace it, or install without --project", dir)
		}
	}
	return nil
}

// make computes the new text.
func (c *Change) make() error {
	if c.Edits == nil {
		c.New = []byte(c.Text)
		c.Done = c.Exists && bytes.Equal(c.Old, c.New)
		if c.Program {
			c.mode = 0o755
		}
		if c.Exists && !c.Done && !strings.Contains(string(c.Old), "cloche") {
			return errors.New("there is another file of this name; merge it by hand (--print shows what cloche would write), or remove it")
		}
		return nil
	}
	c.New = c.Old
	if !c.Exists {
		c.New = []byte("{}\n")
	}
	c.Done = c.Exists
	for i := range c.Edits {
		e := &c.Edits[i]
		has, err := e.in(c.New, c.Comments)
		if err != nil {
			return err
		}
		if has {
			c.before = append(c.before, keep)
			continue
		}
		c.Done = false
		var before string
		if c.New, before, err = e.apply(c.New, c.Comments); err != nil {
			return err
		}
		c.before = append(c.before, before)
	}
	return nil
}

// keep in place of what a key had before: the entry was there and is not removed.
const keep = "keep"

// in reports whether a text has the entry.
func (e *Edit) in(text []byte, comments bool) (bool, error) {
	if !e.Append {
		now, err := lookup(text, comments, e.Path)
		return now == jsonText(e.Value), err
	}
	_, has, err := e.undo(text, comments, "")
	return has, err
}

// Install makes the changes and records them. If one fails, those before it are taken back.
func (s *Store) Install(a *Agent, p *Places, changes []Change) error {
	for i := range changes {
		c := &changes[i]
		if c.Done {
			continue
		}
		r := Record{Agent: a.Name, Scope: p.Scope, Cloche: p.Cloche, File: c.File, Sum: ownfile.Sum(c.New), Edits: c.Edits, Before: c.before, Comments: c.Comments}
		if p.Scope == Project {
			r.Project = p.Project
		}
		if err := s.write(c, &r); err != nil {
			return errors.Join(err, s.takeBack(a, p, changes[:i]))
		}
	}
	return nil
}

func (s *Store) takeBack(a *Agent, p *Places, done []Change) error {
	if !slices.ContainsFunc(done, func(c Change) bool { return !c.Done }) {
		return nil
	}
	_, err := s.Uninstall(a.Name, p.Scope, p.Project)
	return err
}

// write records the change before it is made, so that it can be undone whatever happens.
func (s *Store) write(c *Change, r *Record) error {
	if c.Exists {
		r.Backup, r.Mode = ownfile.Sum(c.Old), c.mode
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return err
		}
		if err := ownfile.Write(filepath.Join(s.dir, r.Backup), c.Old); err != nil {
			return fmt.Errorf("the copy of %s cannot be written: %w; nothing was changed", c.File, err)
		}
	}
	for dir := filepath.Dir(c.File); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		r.Made = append(r.Made, dir)
	}
	err := s.list.Edit(func(list []Record) ([]Record, error) { return append(list, *r), nil })
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.File), 0o755); err != nil {
		return err
	}
	return replaceFile(c.File, c.New, c.mode)
}

// replaceFile replaces a file in one step, with a mode.
func replaceFile(file string, data []byte, mode fs.FileMode) error {
	if err := ownfile.Write(file, data); err != nil {
		return err
	}
	return os.Chmod(file, mode)
}

// An Undone is what uninstall did to a file.
type Undone struct {
	File string `json:"file"`
	// Did is "restored" (byte for byte), "removed" (there was none), "edited" (other changes were kept), or
	// "gone" (the entry was not there).
	Did string `json:"did"`
}

// Uninstall undoes what was installed of an agent for a scope; an empty scope is every one
// that counts in the project.
func (s *Store) Uninstall(agent string, scope Scope, project string) ([]Undone, error) {
	var done []Undone
	err := s.list.Edit(func(list []Record) ([]Record, error) {
		var left []Record
		for _, r := range slices.Backward(list) {
			if r.Agent != agent || scope != "" && r.Scope != scope || r.Project != "" && r.Project != project {
				left = append(left, r)
				continue
			}
			did, err := s.undo(&r)
			if err != nil {
				return nil, err
			}
			done = append(done, Undone{r.File, did})
		}
		slices.Reverse(left)
		return left, nil
	})
	return done, err
}

func (s *Store) undo(r *Record) (string, error) {
	if r.Project != "" {
		if err := noLinks(r.Project, r.File); err != nil {
			return "", err
		}
	}
	now, err := ownfile.Read(r.File)
	if errors.Is(err, fs.ErrNotExist) {
		return "gone", nil
	}
	if err != nil {
		return "", ownfile.Describe("settings", r.File, err)
	}
	switch {
	case ownfile.Sum(now.Data) == r.Sum && r.Backup != "":
		old, err := ownfile.Read(filepath.Join(s.dir, r.Backup))
		if err != nil {
			return "", fmt.Errorf("the copy of %s: %w", r.File, err)
		}
		return "restored", replaceFile(r.File, old.Data, r.Mode)
	case ownfile.Sum(now.Data) == r.Sum:
		if err := os.Remove(r.File); err != nil {
			return "", err
		}
		for _, dir := range r.Made {
			_ = os.Remove(dir) // only an empty one goes
		}
		return "removed", nil
	case r.Edits == nil:
		return "", fmt.Errorf("%s was changed since; look at it, and remove it by hand", r.File)
	}
	return r.takeOut(now.Data)
}

// takeOut removes the entries from a file that was changed since.
func (r *Record) takeOut(text []byte) (string, error) {
	did := "gone"
	for i := range slices.Backward(r.Edits) {
		before := ""
		if i < len(r.Before) {
			before = r.Before[i]
		}
		if before == keep {
			continue
		}
		changed, has, err := r.Edits[i].undo(text, r.Comments, before)
		if err != nil {
			return "", fmt.Errorf("%s: %w; nothing was changed", r.File, err)
		}
		if has {
			text, did = changed, "edited"
		}
	}
	if did == "gone" {
		return did, nil
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(r.File); err == nil {
		mode = info.Mode().Perm()
	}
	return did, replaceFile(r.File, text, mode)
}
