package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// TrustFileName is the trust store in the data folder.
const TrustFileName = "trust.json"

// A TrustStore remembers which project files the user trusts: the exact path
// with the exact content. A file that changes, or a copy of it in another
// folder, is not trusted.
type TrustStore struct{ path string }

// OpenTrust returns the trust store of a data folder. It reads nothing yet.
func OpenTrust(dataDir string) *TrustStore {
	if dataDir == "" {
		return &TrustStore{}
	}
	return &TrustStore{path: filepath.Join(dataDir, TrustFileName)}
}

// A Trusted is one trusted project file.
type Trusted struct {
	Path   string    `json:"path"`
	SHA256 string    `json:"sha256"`
	Time   time.Time `json:"time"`
}

// trustFile is the form of the store on disk.
type trustFile struct {
	Version int       `json:"version"`
	Trusted []Trusted `json:"trusted"`
}

const trustVersion = 1

// Trust trusts a project file with the content that it has now, and returns
// what it recorded. It refuses a file that others can change.
func (s *TrustStore) Trust(path string) (Trusted, error) {
	key, err := trustKey(path)
	if err != nil {
		return Trusted{}, describe("trust", path, err)
	}
	c, err := readFile(key)
	if err != nil {
		return Trusted{}, describe("trust", key, err)
	}
	if why := c.exposed(); why != "" {
		return Trusted{}, &ExposedError{What: "project policy", Path: key, Why: why}
	}
	t := Trusted{Path: key, SHA256: c.sum(), Time: time.Now().UTC().Truncate(time.Second)}
	err = s.edit(func(list []Trusted) []Trusted { return append(without(list, key), t) })
	return t, err
}

// Untrust forgets a project file, and reports whether it was known. The file
// itself may be gone.
func (s *TrustStore) Untrust(path string) (bool, error) {
	key, err := trustKey(path)
	if err != nil {
		// The folder is gone: it can only be in the store by its last path.
		if key, err = filepath.Abs(path); err != nil {
			return false, describe("untrust", path, err)
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

// IsTrusted reports whether the user trusts the file with this very content.
func (s *TrustStore) IsTrusted(path string, data []byte) (bool, error) {
	key, err := trustKey(path)
	if err != nil {
		return false, describe("trust", path, err)
	}
	list, err := s.List()
	if err != nil {
		return false, err
	}
	sum := hexSum(data)
	return slices.ContainsFunc(list, func(t Trusted) bool { return t.Path == key && t.SHA256 == sum }), nil
}

// judge decides whether a project file is trusted, and says why not.
func (s *TrustStore) judge(path string, c content) (trusted bool, why string, err error) {
	if why := c.exposed(); why != "" {
		return false, why + ", so it may only tighten the policy", nil
	}
	trusted, err = s.IsTrusted(path, c.data)
	if err != nil || trusted {
		return trusted, "", err
	}
	return false, "this content is not trusted, so it may only tighten the policy; read it, then run cloche policy trust", nil
}

// List returns all that is trusted, sorted by path.
func (s *TrustStore) List() ([]Trusted, error) {
	if s.path == "" {
		return nil, nil
	}
	c, err := readFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, describe("trust store", s.path, err)
	}
	if why := c.exposed(); why != "" {
		return nil, &ExposedError{What: "trust store", Path: s.path, Why: why}
	}
	var f trustFile
	if err := json.Unmarshal(c.data, &f); err != nil {
		return nil, fmt.Errorf("trust store %s: %w; remove the file and trust your projects again", s.path, err)
	}
	if f.Version != trustVersion {
		return nil, fmt.Errorf("trust store %s: version %d is not known; use the cloche that wrote it, or remove the file", s.path, f.Version)
	}
	return f.Trusted, nil
}

// edit changes the list under a lock, so that two processes do not undo each
// other: a lost removal would leave a project trusted.
func (s *TrustStore) edit(change func([]Trusted) []Trusted) error {
	if s.path == "" {
		return errors.New("trust store: there is no data folder; set XDG_DATA_HOME or HOME")
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return describe("trust store", s.path, err)
	}
	lock := flock.New(s.path+".lock", flock.SetPermissions(0o600))
	if err := lock.Lock(); err != nil {
		return describe("trust store", s.path, err)
	}
	defer func() { _ = lock.Close() }()
	list, err := s.List()
	if err != nil {
		return err
	}
	list = change(list)
	slices.SortFunc(list, func(a, b Trusted) int { return strings.Compare(a.Path, b.Path) })
	text, err := json.MarshalIndent(trustFile{Version: trustVersion, Trusted: list}, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(s.path, append(text, '\n')); err != nil {
		return describe("trust store", s.path, err)
	}
	return nil
}

// trustKey is the path that a file is trusted under: its folder without
// symbolic links, and its own name. Following the file's own link would let a
// project borrow another's trust by linking to its file.
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
