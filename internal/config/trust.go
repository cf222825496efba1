package config

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/internal/ownfile"
)

// TrustFileName is the trust store in the data folder.
const TrustFileName = "trust.json"

// A TrustStore remembers which project files the user trusts: the exact path with the
// exact content. A changed file, or a copy in another folder, is not trusted.
type TrustStore struct{ list ownfile.List[Trusted] }

// OpenTrust returns the trust store of a data folder. It reads nothing yet.
func OpenTrust(dataDir string) *TrustStore {
	s := &TrustStore{ownfile.List[Trusted]{What: "trust store", Field: "trusted", Lost: "remove the file and trust your projects again"}}
	if dataDir != "" {
		s.list.Path = filepath.Join(dataDir, TrustFileName)
	}
	return s
}

// A Trusted is one trusted project file.
type Trusted struct {
	Path   string    `json:"path"`
	SHA256 string    `json:"sha256"`
	Time   time.Time `json:"time"`
}

// Trust records that the user trusts a project file with its present content, and
// returns the record. It refuses a file that others can change.
func (s *TrustStore) Trust(path string) (Trusted, error) {
	key, err := trustKey(path)
	if err != nil {
		return Trusted{}, ownfile.Describe("trust", path, err)
	}
	c, err := ownfile.ReadWithin(key)
	if err != nil {
		return Trusted{}, ownfile.Describe("trust", key, err)
	}
	if why := c.Exposed(); why != "" {
		return Trusted{}, &ownfile.ExposedError{What: "project policy", Path: key, Why: why}
	}
	t := Trusted{Path: key, SHA256: c.Sum(), Time: time.Now().UTC().Truncate(time.Second)}
	err = s.edit(func(list []Trusted) []Trusted { return append(without(list, key), t) })
	return t, err
}

// Untrust removes a project file from the store, and reports whether it was there. The
// file itself need not exist.
func (s *TrustStore) Untrust(path string) (bool, error) {
	key, err := trustKey(path)
	if err != nil {
		// The folder is gone, so only its last path can be in the store.
		if key, err = filepath.Abs(path); err != nil {
			return false, ownfile.Describe("untrust", path, err)
		}
	}
	found := false
	err = s.edit(func(list []Trusted) []Trusted {
		rest := without(list, key)
		found = len(rest) < len(list)
		return rest
	})
	return found, err
}

// IsTrusted reports whether the user trusts the file with exactly this content.
func (s *TrustStore) IsTrusted(path string, data []byte) (bool, error) {
	key, err := trustKey(path)
	if err != nil {
		return false, ownfile.Describe("trust", path, err)
	}
	list, err := s.List()
	if err != nil {
		return false, err
	}
	sum := ownfile.Sum(data)
	return slices.ContainsFunc(list, func(t Trusted) bool { return t.Path == key && t.SHA256 == sum }), nil
}

// List returns all trusted files, sorted by path.
func (s *TrustStore) List() ([]Trusted, error) { return s.list.Read() }

func (s *TrustStore) edit(change func([]Trusted) []Trusted) error {
	return s.list.Edit(func(list []Trusted) ([]Trusted, error) {
		list = change(list)
		slices.SortFunc(list, func(a, b Trusted) int { return strings.Compare(a.Path, b.Path) })
		return list, nil
	})
}

// trustKey returns the path under which a file is trusted: its folder without symbolic
// links, and its own name. A link at the file itself is not followed: a project could
// link to another project's file and so use that project's trust.
func trustKey(path string) (string, error) {
	dir, err := realFolder(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

func without(list []Trusted, path string) []Trusted {
	return slices.DeleteFunc(slices.Clone(list), func(t Trusted) bool { return t.Path == path })
}
