package grant

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/cloche-dev/cloche/internal/ownfile"
)

// fileName is the name of the store's file in the data folder.
const fileName = "grants.json"

// A Store keeps grants that outlive a session. It is a file of the user that commands can
// never write. Several processes may use it at once.
type Store struct{ list ownfile.List[Grant] }

// OpenStore returns the store in a data folder. It does not read it yet.
func OpenStore(dataDir string) *Store {
	s := &Store{ownfile.List[Grant]{What: "grants", Field: "grants", Lost: "remove the file and grant again what you need"}}
	if dataDir != "" {
		s.list.Path = filepath.Join(dataDir, fileName)
	}
	return s
}

// Path returns the path of the store's file.
func (s *Store) Path() string { return s.list.Path }

// Add stores a grant. It is on disk when Add returns nil. It replaces grants of the same
// access that do not last longer.
func (s *Store) Add(g Grant) error {
	if s == nil {
		return errors.New("grants: there is no store, so nothing can be granted for longer than a session; choose once or session")
	}
	if !utf8.ValidString(g.Path) {
		return fmt.Errorf("grants: the name of %q is not text (UTF-8), and the store would keep another; choose once or session", g.Path)
	}
	return s.edit(func(list []Grant) ([]Grant, error) {
		if slices.ContainsFunc(list, func(o Grant) bool { return o.ID == g.ID }) {
			return nil, fmt.Errorf("grants: %s is taken; decide again", g.ID)
		}
		return append(slices.DeleteFunc(list, func(o Grant) bool { return g.same(o) && !o.outlasts(&g) }), g), nil
	})
}

// same reports whether two grants give the same access in the same workspace.
func (g *Grant) same(o Grant) bool {
	return g.Path == o.Path && g.Host == o.Host && g.Access == o.Access && g.Workspace == o.Workspace
}

// outlasts reports whether a grant lasts longer than another.
func (g *Grant) outlasts(o *Grant) bool {
	return !o.Expires.IsZero() && (g.Expires.IsZero() || g.Expires.After(o.Expires))
}

// Revoke removes a grant and returns it, or nil if there is none with that id. Running
// sandboxes keep their access; the next plan does not have it.
func (s *Store) Revoke(id string) (*Grant, error) {
	var found *Grant
	err := s.edit(func(list []Grant) ([]Grant, error) {
		return slices.DeleteFunc(list, func(g Grant) bool {
			if g.ID == id {
				found = &g
			}
			return g.ID == id
		}), nil
	})
	return found, err
}

// edit changes the list, and drops expired grants.
func (s *Store) edit(change func([]Grant) ([]Grant, error)) error {
	return s.list.Edit(func(list []Grant) ([]Grant, error) {
		now := time.Now()
		return change(slices.DeleteFunc(list, func(g Grant) bool { return !g.Live(now) }))
	})
}

// List returns the live grants, oldest first.
func (s *Store) List() ([]Grant, error) {
	if s == nil {
		return nil, nil
	}
	list, err := s.list.Read()
	now := time.Now()
	return slices.DeleteFunc(list, func(g Grant) bool { return !g.Live(now) }), err
}

// For returns the live grants for a workspace.
func (s *Store) For(workspace string) ([]Grant, error) {
	list, err := s.List()
	return slices.DeleteFunc(list, func(g Grant) bool { return g.Workspace != workspace }), err
}
